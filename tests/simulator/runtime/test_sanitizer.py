"""The same tests on libraries that are built with the address sanitizer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulator.build import DEFAULT_ROOT, build

HERE = Path(__file__).parent


def library(name: str) -> str:
    """The path of one of GCC's own libraries."""
    command = ["g++", f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("NPUCALL_SIM_ASAN") == "1", reason="this is that run")
def test_the_address_sanitizer_finds_nothing() -> None:
    build(DEFAULT_ROOT.with_name("simulator-asan"), asan=True)
    environment = {
        **os.environ,
        "NPUCALL_SIM_ASAN": "1",
        "LD_PRELOAD": f"{library('libasan.so')}:{library('libstdc++.so')}",
        # Python never frees what it keeps; callers release with free() what new[] gave.
        "ASAN_OPTIONS": "detect_leaks=0,alloc_dealloc_mismatch=0",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE)]
    ended = subprocess.run(
        command, env=environment, cwd=HERE.parents[2], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
