"""Tiny shared libraries, compiled for a test."""

from __future__ import annotations

import subprocess
import tempfile
from functools import cache
from pathlib import Path

PHASES = ("aclnnX", "aclnnXGetWorkspaceSize")
"""The two phases of an operator of tests."""


def compiled(path: Path, source: str, *linked: Path, flags: tuple[str, ...] = ()) -> Path:
    """A shared library of this C source, linked with others; each path gets a file of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_library(source, *linked, flags=flags))
    return path


def library(path: Path, *functions: str, answer: int = 0) -> Path:
    """A shared library of these functions, both phases of ``aclnnX`` if none is named.

    They take nothing, and answer a number by which their library can be told.
    """
    lines = (f"int {name}(void) {{ return {answer}; }}\n" for name in functions or PHASES)
    return compiled(path, "".join(lines))


@cache
def _library(source: str, *linked: Path, flags: tuple[str, ...]) -> bytes:
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-Wl,--no-as-needed"]
    with tempfile.TemporaryDirectory(prefix="npucall-") as folder:
        made = Path(folder, "made.so")
        subprocess.run([*command, *linked, *flags, "-o", made], input=source, text=True, check=True)
        return made.read_bytes()
