"""docs/torch.md does what it says, and so does its example."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from npucall_client.torch import Functional  # noqa: E402

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/torch.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CHECK, STEP = (text for language, text in BLOCKS if language == "python")
(TABLE,) = (text for language, text in BLOCKS if not language)


def output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, path: Path, *told: str
) -> str:
    """What a program prints that ends well. In this process, since torch takes long to import."""
    monkeypatch.setattr(sys, "argv", [str(path), *told])
    ended: object = 0
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        ended = end.code
    assert not ended
    return capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:this backward spent")
def test_its_programs_print_what_it_says(
    npucall_server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "check.py").write_text(CHECK, encoding="utf-8")
    (tmp_path / "step.py").write_text(STEP, encoding="utf-8")
    printed = output(capsys, monkeypatch, tmp_path / "check.py", "local:")
    assert without_numbers(printed) == without_numbers(TABLE)
    said = re.findall(r"print\(.*?\)  # (.*)$", STEP, re.MULTILINE)
    printed = output(capsys, monkeypatch, tmp_path / "step.py", npucall_server)
    assert printed.splitlines() == said


def without_numbers(table: str) -> str:
    """The table without its errors, which differ from machine to machine."""
    return re.sub(r" +(?=\n)| {2,}|\b\d(\.\d+)?(e-\d+)?(?=  )", " ", table).replace(" ", "")


def test_its_functions_are_those_that_there_are() -> None:
    (listed,) = re.findall(r"^- losses: .*?(?=\n\n)", PAGE, re.MULTILINE | re.DOTALL)
    there = {name for name in vars(Functional) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", listed)) == there


def test_a_student_learns_with_gradients_of_a_server_as_with_those_of_torch(
    npucall_server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    picture = tmp_path / "curve.svg"
    told = (npucall_server, "--picture", str(picture))
    printed = output(capsys, monkeypatch, ROOT / "examples/distill.py", *told)
    assert re.search(r"^60 steps in [\d.]+ s, at most \S+ apart$", printed, re.MULTILINE)
    assert picture.read_text(encoding="utf-8").count("<polyline") == 2
