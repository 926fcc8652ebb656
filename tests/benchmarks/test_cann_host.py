"""The benchmark of the host's time: time that a call spends in C is not counted as ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNEL_MICROSECONDS = 200_000


pytestmark = pytest.mark.long  # it measures


def test_waiting_for_a_kernel_is_not_our_time(tmp_path: Path) -> None:
    """Two calls of each kind, whose kernels take 0.2 s."""
    path = tmp_path / "figures.json"
    command = [sys.executable, "benchmarks/cann.py", "--only", "host", "--rounds", "1"]
    slow = {"NPUCALL_SIM_KERNEL_US": str(KERNEL_MICROSECONDS)}
    command += ["--calls", "2", "--json", str(path)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **slow}, check=True)
    figures = json.loads(path.read_text())
    assert [figure["name"] for figure in figures] == [
        "1 KiB, host, ours",
        "1 KiB, host, ours, C empty",
        "1 KiB, a step of a program, host, ours",
        "1 KiB, a step of a program, C empty",
        "16 MiB, in pieces, host, ours",
        "16 MiB, waiting, host, ours",
    ]
    assert all(0 < figure["absolute"] < KERNEL_MICROSECONDS for figure in figures)
    assert all(set(figure) == {"name", "absolute", "unit", "must", "better"} for figure in figures)
    assert figures[0]["must"] == 150
