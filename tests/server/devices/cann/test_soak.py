"""The soak, in a process that did nothing before: what others freed there would be taken again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.long
def test_after_a_while_nothing_is_allocated_and_memory_does_not_grow() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", HERE / "soak.py"]
    done = subprocess.run(command, cwd=HERE.parents[3], capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
