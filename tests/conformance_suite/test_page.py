"""docs/conformance.md: every line of it works, and every option of the command has one."""

from __future__ import annotations

import inspect
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.rows import each

from npucall_conformance import conform_command as module

from .servers import command

if TYPE_CHECKING:
    from click.testing import Result

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
HOST = "npu-host:50051"
FEW = {"--quick": "", "--operator": "Silu", "--block": "grid"}
"""What lines get that do not choose for themselves: few cases."""


def lines() -> list[str]:
    """The commands of the page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines() if line]


def options() -> set[str]:
    """Those that the command has."""
    names = set(inspect.signature(module.conform).parameters) - {"target", "target_option"}
    names.add("target")  # which is an argument too
    return {f"--{name.strip('_').replace('_', '-')}" for name in names}


def called(line: str, folder: Path) -> Result:
    """The line as it stands, on ``local:``, in a folder of its own."""
    words = ["local:" if word == HOST else word for word in shlex.split(line)][1:]
    if "--case" not in words:
        for option, value in FEW.items():
            if option not in words and not (option == "--quick" and "--fuzz" in words):
                words += [option, value] if value else [option]
    if "--fuzz" in words:  # a block is no part of it, and a few seconds are enough
        words[words.index("--fuzz") + 1] = "4"
        del words[words.index("--block") : words.index("--block") + 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return command(*words)


@pytest.fixture
def folder(tmp_path: Path, fake_clock: object) -> Path:
    """Where lines are run; it has the baseline that one of them wants."""
    called(f"npucall conform {HOST} --baseline npu.json --write-baseline", tmp_path)
    return tmp_path


def works(line: str, folder: Path) -> None:
    result = called(line, folder)
    assert (result.exit_code, result.exception) == (0, None), result.output
    written = [word for word in shlex.split(line) if re.search(r"\.(html|json|xml)$", word)]
    assert [name for name in written if not (folder / name).exists()] == []


def some(*options: str) -> list[str]:
    """The lines with one of these options."""
    return [line for line in lines() if set(options) & set(line.split())]


@each("line", set(lines()) - set(some("--adapter", "--fuzz")))
def test_a_line_of_the_page_works(line: str, folder: Path) -> None:
    works(line, folder)


@pytest.mark.more
@each("line", some("--fuzz"))
def test_a_line_of_the_page_that_judges_much_works(line: str, folder: Path) -> None:
    works(line, folder)


@pytest.mark.torch
@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")
@each("line", some("--adapter"))
def test_an_adapters_line_works(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch  # optional

    from .fake_torch_npu import install, stand_in  # likewise

    install(monkeypatch, torch, stand_in(torch))
    works(line, folder)


def test_every_option_has_a_line() -> None:
    shown = {word for line in lines() for word in shlex.split(line) if word.startswith("--")}
    explained = set(re.findall(r"`(--[a-z-]+)", PAGE.read_text().partition("## Options")[0]))
    assert options() <= shown | explained
    assert shown <= options()
