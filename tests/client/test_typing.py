"""The programs of tests/typing under both type checkers, without the comments that silence them.

``make types`` checks the programs as they stand. There a comment covers a whole line; here every
marked line has to be an error by itself, and no other.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("mypy")
pytest.importorskip("pyright")

ROOT = Path(__file__).parents[2]
MEMBERS = [str(ROOT / member) for member in ("proto", "client", "server")]
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


def mypy(folder: Path, *options: str) -> Errors:
    """By the settings of pyproject.toml: what ``make types`` has read it does not read again."""
    command = [sys.executable, "-m", "mypy", *options, str(folder)]
    given = {**os.environ, "MYPYPATH": os.pathsep.join(MEMBERS)}
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    found = re.findall(r"^(.+?):(\d+): error:", done.stdout, re.MULTILINE)
    return {(Path(name).name, int(line)) for name, line in found}


def mypy_with_torch(folder: Path) -> Errors:
    """By settings of its own: those of pyproject.toml pass over torch."""
    return mypy(
        folder, "--config-file=", "--strict", "--follow-imports=silent", "--ignore-missing-imports",
        "--explicit-package-bases", "--no-warn-return-any",
    )  # fmt: skip


def pyright(folder: Path) -> Errors:
    """Pyright takes its settings from the command line or from a file, not from both."""
    settings = {
        "include": [str(folder)],
        "typeCheckingMode": "basic",
        "extraPaths": MEMBERS,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    options = ["--outputjson", "--pythonpath", sys.executable, "--project", str(folder)]
    command = [sys.executable, "-m", "pyright", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] > 0
    return {
        (Path(entry["file"]).name, entry["range"]["start"]["line"] + 1)
        for entry in report["generalDiagnostics"]
        if entry["severity"] == "error"
    }


@pytest.mark.more
@pytest.mark.parametrize("check", [mypy, pyright])
def test_every_wrong_call_alone_is_found(check: Callable[[Path], Errors], tmp_path: Path) -> None:
    marked = set()
    for program in PROGRAMS.glob("*.py"):
        lines = program.read_text().splitlines()
        marked |= {
            (program.name, number) for number, line in enumerate(lines, 1) if MARK.search(line)
        }
        (tmp_path / program.name).write_text("\n".join(MARK.sub("", line) for line in lines))
    assert {name for name, _ in marked} == {"bad_calls.py"}
    assert len(marked) >= 20
    assert check(tmp_path) == marked


@pytest.mark.torch
@pytest.mark.parametrize("check", [pyright, pytest.param(mypy_with_torch, marks=pytest.mark.long)])
def test_tensors_of_torch_are_accepted(check: Callable[[Path], Errors], tmp_path: Path) -> None:
    """mypy reads all of torch, which takes long."""
    pytest.importorskip("torch")
    (tmp_path / "with_torch.py").write_text(WITH_TORCH)
    assert check(tmp_path) == KNOWN
