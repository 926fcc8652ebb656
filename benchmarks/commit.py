"""Which version of the project a report is about."""

from __future__ import annotations

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def commit(root: Path = _ROOT) -> str:
    """The short name of the commit that is checked out there."""
    asked = ["git", "-C", root, "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
