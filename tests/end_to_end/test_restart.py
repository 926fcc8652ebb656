"""A server that is killed: calls have no side effects, so the client repeats them."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.dtypes import AnyArray

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

ONE = np.ones((), np.float32)
HALVES = np.full((1, 64, 65536), 0.5, np.float32)
"""16 MiB; gRPC by itself repeats nothing above 256 KiB."""
ROWS = np.zeros((512, 1, 1), np.float32)
"""Stretches a call with HALVES to 2**31 elements: two seconds or so."""
ONE_MESSAGE = 2**62
"""A ``stream_from`` that no call reaches: none travels in chunks."""
EXPECTED = -(2.0**21)
"""Minus the sum of HALVES."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def large_call(client: npucall_client.Client) -> AnyArray:
    return client.run(kl_div_backward, ONE, ROWS, HALVES, reduction=2)


@pytest.mark.long
@pytest.mark.more
def test_a_call_of_16_mib_survives_a_server_that_is_killed_while_it_runs(
    pool: ThreadPoolExecutor,
) -> None:
    with running_server("--memory-limit=64GiB") as server:
        client = npucall_client.connect(server.target, stream_from=ONE_MESSAGE)
        with wire.bare_channel(server.target) as observer:
            answer = pool.submit(large_call, client)
            wire.until(lambda: wire.calls_in_flight(observer) == 1, "it runs")
        server.process.kill()
        server.process.wait()
        assert not answer.done()
    with running_server("--memory-limit=64GiB", listen=server.target), client:
        assert np.unique(answer.result(wire.PATIENCE)).tolist() == [EXPECTED]


@pytest.mark.more
def test_a_call_of_16_mib_survives_a_server_that_is_killed_while_it_arrives(
    pool: ThreadPoolExecutor,
) -> None:
    """A stopped process takes what fits into the buffers of its socket, no more."""
    large = np.ones(1 << 22, np.float32)
    with running_server() as server:
        client = npucall_client.connect(server.target, stream_from=ONE_MESSAGE)
        server.process.send_signal(signal.SIGSTOP)
        answer = pool.submit(client.run, l1_loss_backward, ONE, large * 2, large, reduction=2)
        with pytest.raises(TimeoutError):
            answer.result(0.3)
        server.process.kill()
        server.process.wait()
    with running_server(listen=server.target), client:
        assert np.unique(answer.result(wire.PATIENCE)).tolist() == [1.0]


def test_a_call_made_while_no_server_is_there_is_answered_by_the_next_one(
    pool: ThreadPoolExecutor,
) -> None:
    with running_server() as server:
        client = npucall_client.connect(server.target)
        before = client.server_info().server.instance
        server.process.kill()
        server.process.wait()
    answer = pool.submit(client.execute, kl_div_backward, ONE, ONE, ONE, reduction=2)
    with running_server(listen=server.target), client:
        result = answer.result(wire.PATIENCE)
        assert result.value.tolist() == -1.0
        assert result.server.instance != before


def test_a_client_whose_server_stays_away_says_so_when_its_timeout_ends() -> None:
    with running_server() as server:
        client = npucall_client.connect(server.target, timeout=0.5)
        server.process.kill()
        server.process.wait()
    with client, pytest.raises(ServerUnreachableError, match=server.target):
        client.run(kl_div_backward, ONE, ONE, ONE)
