"""The programs of tests/typing under both type checkers, without the comments that silence them.

``make types`` checks the programs as they stand. There a comment covers a whole line; here every
marked line has to be an error by itself, and no other.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
pytest.importorskip("pyright")

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests/typing"
MARK = re.compile(r"  # type: ignore\[[\w, -]+\]$")

# What torch's stubs make of the protocol `Array`.
WITH_TORCH = """
import torch
from npucall.operators.kl_div_backward import kl_div_backward
from npucall_client import Client

def tensors(client: Client, x: torch.Tensor) -> None:
    client.run(kl_div_backward, x, self=x, target=x.to(torch.bfloat16), reduction=0)
    client.options(outputs={"out": x}).run(kl_div_backward, x, x, x)
    known: str = x
"""
KNOWN = {("with_torch.py", 9)}  # an error only where the checker knows what a tensor is

Errors = set[tuple[str, int]]
"""File name and line of each error."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the programs without their marks."""
    folder = tmp_path_factory.mktemp("typing")
    for program in PROGRAMS.glob("*.py"):
        lines = program.read_text().splitlines()
        (folder / program.name).write_text("\n".join(MARK.sub("", line) for line in lines))
    return folder


@pytest.fixture(scope="module")
def marked() -> Errors:
    """The lines that have to be errors."""
    return {
        (program.name, number)
        for program in PROGRAMS.glob("*.py")
        for number, line in enumerate(program.read_text().splitlines(), start=1)
        if MARK.search(line)
    }


def mypy(*paths: Path) -> Errors:
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    found = re.findall(r"^(.+?):(\d+): error:", done.stdout, re.MULTILINE)
    return {(Path(name).name, int(line)) for name, line in found}


def pyright(*paths: Path) -> Errors:
    """Pyright takes its settings from the command line or from a file, not from both."""
    settings = {
        "include": list(map(str, paths)),
        "typeCheckingMode": "basic",
        "extraPaths": [str(ROOT / member) for member in ("proto", "client", "server")],
    }
    project = paths[0] if paths[0].is_dir() else paths[0].parent
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(project)]
    command = [sys.executable, "-m", "pyright", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] > 0
    return {
        (Path(entry["file"]).name, entry["range"]["start"]["line"] + 1)
        for entry in report["generalDiagnostics"]
        if entry["severity"] == "error"
    }


def test_mypy_finds_every_wrong_call_and_no_other(programs: Path, marked: Errors) -> None:
    assert mypy(programs) == marked


@pytest.mark.more
def test_pyright_finds_every_wrong_call_and_no_other(programs: Path, marked: Errors) -> None:
    assert pyright(programs) == marked


def test_there_are_wrong_calls_to_find(marked: Errors) -> None:
    assert {name for name, _ in marked} == {"bad_calls.py"}
    assert len(marked) >= 20


@pytest.mark.torch
def test_pyright_accepts_tensors_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "with_torch.py"
    program.write_text(WITH_TORCH)
    assert pyright(program) == KNOWN


@pytest.mark.torch
@pytest.mark.long  # mypy reads all of torch
def test_mypy_accepts_tensors_of_torch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "with_torch.py"
    program.write_text(WITH_TORCH)
    assert mypy(program) == KNOWN
