"""Calls of a few bytes that claim hours of computation, or memory that is not there."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import npucall_client
from npucall.errors import CancelledError, DeadlineError, TooLargeError
from npucall.operators.ctc_loss_backward import ctc_loss_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.operators.softmax_backward import softmax_backward
from npucall_client.testing import running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client import Client

MINUTES = 3_000_000
"""Steps that take some minutes, in one turn."""
PATIENCE = 30.0
MIB = 2**20


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    with running_server("--memory-limit=256MiB", "--computation-limit=100000000") as server:
        yield server.target


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with npucall_client.connect(target) as client:
        yield client
        until(lambda: in_flight(client) == 0, "no call is left for the next test")


def until(condition: Callable[[], bool], what: str) -> None:
    never, end = threading.Event(), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if condition():
            return
        never.wait(0.02)
    raise AssertionError(f"did not happen: {what}")


def in_flight(client: Client) -> int:
    return client.server_info().calls_in_flight


def ctc(steps: int, labels: int = 1) -> dict[str, Any]:
    """A call with as many steps, all of which are one in memory."""
    shapes = {"log_probs": (steps, 1, 2), "log_alpha": (1, steps, 2 * labels + 1)}
    one = np.array(-1, np.float32)
    return {
        "grad_out": np.ones(1, np.float32),
        "targets": np.broadcast_to(np.int64(1), (1, labels)),
        "input_lengths": [steps],
        "target_lengths": [labels],
        "neg_log_likelihood": np.ones(1, np.float32),
        **{name: np.broadcast_to(one, shape) for name, shape in shapes.items()},
    }


def small(client: Client) -> Any:
    x = np.arange(4, dtype=np.float32)
    return client.options(timeout=PATIENCE).run(l1_loss_backward, np.float32(1), x, x + 1)


def test_its_deadline_ends_a_computation_of_millions_of_steps(client: Client) -> None:
    with pytest.raises(DeadlineError):
        client.options(timeout=0.5).run(ctc_loss_backward, **ctc(MINUTES))
    until(lambda: in_flight(client) == 0, "the server stops computing")
    assert small(client).tolist() == [-0.25] * 4


def test_a_cancel_ends_a_computation_of_millions_of_steps(client: Client) -> None:
    with client.pipeline() as pipeline:
        call = pipeline.submit(ctc_loss_backward, **ctc(MINUTES))
        until(lambda: in_flight(client) == 1, "the call runs")
        call.cancel()
        with pytest.raises(CancelledError):
            call.result(PATIENCE)
        until(lambda: in_flight(client) == 0, "the server stops computing")


def test_small_calls_are_answered_beside_as_many_long_ones_as_there_are_cores(
    client: Client,
) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    with client.pipeline() as pipeline:
        calls = [pipeline.submit(ctc_loss_backward, **ctc(100_000)) for _ in range(cores + 1)]
        until(lambda: in_flight(client) == cores + 1, "the calls run")
        for _ in range(10):
            assert small(client).tolist() == [-0.25] * 4
        for call in calls:
            call.cancel()
            with pytest.raises(CancelledError):
                call.result(PATIENCE)


def test_a_call_that_computes_more_than_the_limit_is_refused_also_by_plan(client: Client) -> None:
    limits = client.server_info().limits
    assert limits.computation_limit == 100_000_000
    with pytest.raises(TooLargeError, match="computation_limit"):
        client.run(ctc_loss_backward, **ctc(20_000_001))  # 3 states and 2 classes a step
    with pytest.raises(TooLargeError, match="computation_limit"):
        client.plan(ctc_loss_backward, **ctc(20_000_001))


def test_a_call_whose_working_memory_exceeds_the_limit_is_refused(client: Client) -> None:
    labels = 8 * MIB  # 64 MiB of log_alpha, if it were dense, and 128 MiB of float64 beside it
    assert client.plan(ctc_loss_backward, **ctc(1, labels)).workspace_bytes == 0
    with pytest.raises(TooLargeError, match=r"working memory.*memory_limit"):
        client.plan(ctc_loss_backward, **ctc(1, 2 * labels))


@pytest.mark.more
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_one_long_row_takes_little_beside_its_answer() -> None:
    """It took ten times as much once. The answer comes in chunks, which are not copied."""
    row = np.broadcast_to(np.float16(0.5), (32 * MIB,))
    with (
        running_server("--memory-limit=256MiB") as server,
        npucall_client.connect(server.target) as client,
        client.pipeline() as pipeline,
    ):
        before = peak_of(server.process.pid)
        answer = pipeline.submit(softmax_backward, row, row, dim=0).result(PATIENCE)
        assert answer.nbytes == 64 * MIB
        assert peak_of(server.process.pid) - before < 64 * MIB + 96 * MIB


def peak_of(pid: int) -> int:
    """The most bytes that a process has held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
