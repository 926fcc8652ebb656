"""The variables of programs, and where libraries are kept that were built here."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET = "NPUCALL_EXEC"
"""The name under which the command listens; the libraries read it."""


def of_toolkit(home: Path) -> dict[str, str]:
    """What ``set_env.sh`` of a toolkit exports, beside the search path."""
    return {
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_TOOLKIT_HOME": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
    }


def of_program(home: Path, socket: str) -> dict[str, str]:
    """All variables of a program that uses the libraries of a toolkit."""
    path = os.environ.get("LD_LIBRARY_PATH")
    libraries = [str(home / "lib64"), *([path] if path else [])]
    changed = {**of_toolkit(home), SOCKET: socket, "LD_LIBRARY_PATH": ":".join(libraries)}
    return {**os.environ, **changed}


def cache() -> Path:
    """The user's folder for what can be made again."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "npucall" / "exec"
