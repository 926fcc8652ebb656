"""docs/conformance.md: every line of it works, and every option of the command has one."""

from __future__ import annotations

import inspect
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer
from tests.more import TURNS
from typer.testing import CliRunner

from npucall_client.conformance import command

if TYPE_CHECKING:
    from click.testing import Result

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
HOST, ADAPTER = "npu-host:50051", "--adapter"
FEW = {"--quick": "", "--operator": "Silu", "--block": "grid"}
"""What lines get that do not choose for themselves: few cases."""


def lines() -> list[str]:
    """The commands of the page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line]


def when(line: str) -> Any:
    """Drawing calls, and judging all products, takes some seconds."""
    return TURNS[any(word in line for word in ("--fuzz", "--matrix"))]


def options() -> set[str]:
    """Those that the command has."""
    names = set(inspect.signature(command.conform).parameters) - {"target", "target_option"}
    names.add("target")  # which is an argument too
    return {f"--{name.strip('_').replace('_', '-')}" for name in names}


def called(line: str, folder: Path) -> Result:
    """The line as it stands, on ``local:``, in a folder of its own."""
    words = ["local:" if word == HOST else word for word in shlex.split(line)][2:]
    if not {"--case", "--list"} & set(words):
        for option, value in FEW.items():
            if option not in words and not (option == "--quick" and "--fuzz" in words):
                words += [option, value] if value else [option]
    if "--fuzz" in words:  # a block is no part of it, and a few seconds are enough
        words[words.index("--fuzz") + 1] = "4"
        del words[words.index("--block") : words.index("--block") + 2]
    app: Any = typer.Typer()
    app.command()(command.conform)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return CliRunner().invoke(app, words)


@pytest.mark.parametrize(
    "line", [pytest.param(e, marks=when(e)) for e in lines() if ADAPTER not in e]
)
def test_a_line_of_the_page_works(line: str, tmp_path: Path) -> None:
    if "--baseline" in line and "--write-baseline" not in line:
        called(f"npucall conform {HOST} --baseline npu.json --write-baseline", tmp_path)
    result = called(line, tmp_path)
    assert (result.exit_code, result.exception) == (0, None), result.output
    written = [word for word in shlex.split(line) if re.search(r"\.(html|json|xml)$", word)]
    assert [name for name in written if not (tmp_path / name).exists()] == []


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("line", [each for each in lines() if ADAPTER in each])
def test_a_line_with_an_adapter_works(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch  # optional
    from stand_in import install, stand_in  # likewise

    install(monkeypatch, torch, stand_in(torch))
    result = called(line, tmp_path)
    assert (result.exit_code, result.exception) == (0, None), result.output


def test_every_option_has_a_line() -> None:
    shown = {word for line in lines() for word in shlex.split(line) if word.startswith("--")}
    explained = set(re.findall(r"`(--[a-z-]+)", PAGE.read_text().partition("## Options")[0]))
    assert options() <= shown | explained
    assert shown <= options()
