"""Calls of a few bytes that claim hours of computation, or memory that is not there."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import npucall_client
from npucall.errors import CancelledError, DeadlineError, TooLargeError
from npucall.operators.ctc_loss_backward import ctc_loss_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client import Client
from npucall_client.testing import running_server

from . import wire

MINUTES = 3_000_000
"""Steps that take some minutes, in one turn."""
MIB = 2**20
ONE = np.float32(1)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    flags = "--memory-limit=256MiB", "--computation-limit=100000000"
    with running_server(*flags) as server, npucall_client.connect(server.target) as client:
        yield client


def in_flight(client: Client, count: int) -> None:
    wire.until(lambda: client.server_info().calls_in_flight == count, f"{count} calls in flight")


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


def test_its_deadline_ends_a_computation_of_millions_of_steps(client: Client) -> None:
    with pytest.raises(DeadlineError):
        client.options(timeout=0.5).run(ctc_loss_backward, **ctc(MINUTES))
    in_flight(client, 0)


@pytest.mark.more
def test_small_calls_are_answered_beside_long_ones_which_a_cancel_ends(client: Client) -> None:
    x, long = np.arange(4, dtype=np.float32), wire.LANES + 1
    with client.pipeline() as pipeline:
        calls = [pipeline.submit(ctc_loss_backward, **ctc(MINUTES)) for _ in range(long)]
        in_flight(client, long)
        for _ in range(10):
            small = client.options(timeout=wire.PATIENCE).run(l1_loss_backward, ONE, x, x + 1)
            assert small.tolist() == [-0.25] * 4
        for call in calls:
            call.cancel()
            with pytest.raises(CancelledError):
                call.result(wire.PATIENCE)
        in_flight(client, 0)


def test_a_call_that_computes_or_needs_more_than_the_limit_is_refused_also_by_plan(
    client: Client,
) -> None:
    """20,000,001 steps of 3 states and 2 classes; 8 Mi labels need 192 MiB, twice as many more."""
    labels = 8 * MIB
    assert client.server_info().limits.computation_limit == 100_000_000
    assert client.plan(ctc_loss_backward, **ctc(1, labels)).workspace_bytes == 0
    for given, said in {
        (20_000_001, 1): "computation_limit",
        (1, 2 * labels): r"working memory.*memory_limit",
    }.items():
        for ask in client.run, client.plan:
            with pytest.raises(TooLargeError, match=said):
                ask(ctc_loss_backward, **ctc(*given))
