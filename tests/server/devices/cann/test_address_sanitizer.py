"""A slice of these tests once more, with a simulator that GCC's address sanitizer watches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROJECT = HERE.parents[3]
SLICE = [
    "test_copies.py",
    "test_deadlines.py",
    "test_descriptors_destroyed.py",
    "test_faults_of_opening.py",
    "test_faults_of_plans.py",
    "test_kernel_failures.py",
    "test_lack_of_memory.py",
    "test_schedules.py",
    "test_stopwatch.py",
    "test_tensors.py",
    "test_unread_bytes.py",
]


def sanitizer() -> str:
    """The library that a process has to preload."""
    command = ["gcc", "-print-file-name=libasan.so"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.long
def test_no_address_is_used_that_must_not_be() -> None:
    environment = {
        **os.environ,
        "LD_PRELOAD": sanitizer(),
        "NPUCALL_SIM_ASAN": "1",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",  # Python's own memory lives to the end
        "PYTHONMALLOC": "malloc",  # every object of Python has an allocation of its own
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not long"]
    done = subprocess.run(
        [*command, *(str(HERE / name) for name in SLICE)],
        cwd=PROJECT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "AddressSanitizer" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
