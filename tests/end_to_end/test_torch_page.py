"""docs/torch.md does what it says, and so does its example."""

from __future__ import annotations

import os
import re
import subprocess
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
SECONDS = 120


def output(*command: str, folder: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore:wire", *command],
        cwd=folder,
        env={**os.environ, "NPUCALL_TARGET": "nobody.invalid:1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_its_programs_print_what_it_says(npucall_server: str, tmp_path: Path) -> None:
    (tmp_path / "check.py").write_text(CHECK, encoding="utf-8")
    (tmp_path / "step.py").write_text(STEP, encoding="utf-8")
    printed = output("check.py", "local:", folder=tmp_path)
    assert without_numbers(printed) == without_numbers(TABLE)
    said = re.findall(r"print\(.*?\)  # (.*)$", STEP, re.MULTILINE)
    assert output("step.py", npucall_server, folder=tmp_path).splitlines() == said


def without_numbers(table: str) -> str:
    """The table without its errors, which differ from machine to machine."""
    return re.sub(r" +(?=\n)| {2,}|\b\d(\.\d+)?(e-\d+)?(?=  )", " ", table).replace(" ", "")


def test_its_functions_are_those_that_there_are() -> None:
    (listed,) = re.findall(r"^- losses: .*?(?=\n\n)", PAGE, re.MULTILINE | re.DOTALL)
    there = {name for name in vars(Functional) if not name.startswith("_")}
    assert set(re.findall(r"`(\w+)`", listed)) == there


def test_a_student_learns_with_gradients_of_a_server_as_with_those_of_torch(
    npucall_server: str, tmp_path: Path
) -> None:
    picture = tmp_path / "curve.svg"
    printed = output("examples/distill.py", npucall_server, "--picture", str(picture))
    assert re.search(r"^60 steps in [\d.]+ s, at most \S+ apart$", printed, re.MULTILINE)
    assert picture.read_text(encoding="utf-8").count("<polyline") == 2
