"""The benchmarks at sizes so small that their figures mean nothing: whether they run."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import process
import pytest
from beside import BesideCase
from cases import (
    ALL_WAYS,
    COPIED,
    COPIES_ALONE,
    FLIGHT,
    FRAMES_WAYS,
    GRPC_ALONE,
    IN_FLIGHT,
    IN_PLACE,
    IN_PROCESS,
    PROGRAM,
    RESIDENTS,
    Case,
)
from figures import KIB, MIB
from goals import rows_of
from memory import MemoryCase
from operators import TORCH, OperatorCase
from page import page
from plan import Plan
from workers import shares_memory

WAYS = (
    *ALL_WAYS,
    *FRAMES_WAYS,
    IN_FLIGHT,
    PROGRAM,
    *RESIDENTS,
    GRPC_ALONE,
    COPIES_ALONE,
    IN_PROCESS,
)
TINY = Plan(
    cases=(
        Case(KIB, 2, (*WAYS, FLIGHT), rounds=2, seconds=0.01),
        Case(KIB, 1, WAYS, "bfloat16", rounds=1, seconds=0.01),
    ),
    memory=(MemoryCase(("as it comes",), rounds=1, size=MIB, callers=2, calls=1),),
    beside=(BesideCase(rounds=1, large=MIB, calls=100, large_calls=1),),
    operators=(OperatorCase("float32", np.float32, KIB, 1, rounds=1),),
    stages=(KIB,),
)


@pytest.mark.long
def test_a_plan_gives_the_figures_that_it_says_and_a_page_with_the_stages() -> None:
    figures = list(TINY.figures(print))
    assert [figure.series for figure in figures] == list(TINY.series())
    lacking = {figure.series.way for figure in figures if figure.absolute is None}
    assert lacking <= {TORCH} | (set() if shares_memory() else {COPIED, IN_PLACE})
    assert {figure.ratio for figure in figures if figure.series.way == "yardstick"} == {1.0}
    # Of two calls of 4 MiB, without the process itself.
    peaks = [figure for figure in figures if "peak memory" in figure.series.name]
    assert len(peaks) == 4
    assert all(1.0 < figure.absolute < 60.0 for figure in peaks)
    assert "each stage alone" in page(rows_of(figures))


def test_cpu_time_of_a_process_is_that_which_it_had() -> None:
    """To the tick of the kernel's clock, of which there are a hundred a second."""
    before = sum(os.times()[:2])
    found = process.cpu_seconds(os.getpid())
    assert before - 0.03 <= found <= sum(os.times()[:2]) + 0.03


PEAK_OF_64_MIB = """
import os, numpy, process
numpy.ones(64 << 20, numpy.uint8)
high = process.peak_bytes(os.getpid())
process.forget_peak(os.getpid())
print(high - process.peak_bytes(os.getpid()))
"""


def test_a_peak_that_is_forgotten_counts_anew() -> None:
    """In a process of its own: what others freed, this one's peak may have been above all."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK_OF_64_MIB],
        cwd=Path(process.__file__).parent, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert int(done.stdout) >= 32 * MIB
