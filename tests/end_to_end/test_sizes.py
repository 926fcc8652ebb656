"""Calls near and over a limit, and very large ones: refused before they are sent, or answered."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.summary import figures

import npucall_client
from npucall.errors import TooLargeError
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.operators.softmax_backward import softmax_backward
from npucall_client import Client
from npucall_client.testing import ServerProcess, running_server

from . import wire

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

KIB, MIB, GIB = 2**10, 2**20, 2**30
LIMIT = 64 * KIB
ONE = np.ones((), np.float32)


@contextmanager
def served(*flags: str, **settings: Any) -> Iterator[tuple[ServerProcess, Client]]:
    with (
        running_server(*flags) as server,
        npucall_client.connect(server.target, **settings) as client,
    ):
        yield server, client


def test_calls_of_any_size_pass_a_server_that_takes_short_messages_alone() -> None:
    """A frame of a stream is a message too, and a call and its request id stand in the first."""
    wrong = []
    with served(f"--max-message-bytes={LIMIT}") as (_, anonymous):
        client = anonymous.options(request_id="x" * 128)
        column, row = np.ones((1024, 1), np.float32), np.zeros((1, 1024), np.float32)
        with client.pipeline() as pipeline:
            for size in (*range(LIMIT - 1024, LIMIT + 1024, 64), 2 * MIB):
                array = np.full(size // 4, 2, np.float32)
                call = (l1_loss_backward, ONE, array, ONE, 2)
                found = client.run(*call), pipeline.submit(*call).result()
                right = [(out.size, np.unique(out).tolist()) for out in found]
                if right != [(array.size, [1.0])] * 2:
                    wrong.append(size)
            call = (l1_loss_backward, ONE, column, row, 2)  # its reply is larger than any request
            for out in client.run(*call), pipeline.submit(*call).result():
                assert (out.nbytes, np.unique(out).tolist()) == (4 * MIB, [1.0])
    assert wrong == []


@pytest.mark.more
def test_a_call_over_the_memory_limit_is_not_sent() -> None:
    """Nor one whose reply alone is over it."""
    with served(f"--memory-limit={MIB}", "--max-message-bytes=8MiB") as (server, client):
        message = r"\(setting memory_limit of the server\), found 1048\d\d\d; the largest .* self"
        with pytest.raises(TooLargeError, match=message) as caught:
            client.run(l1_loss_backward, ONE, np.ones(MIB // 4, np.float32), ONE)
        assert caught.value.details == {"limit": str(MIB), "setting": "memory_limit"}
        assert caught.value.parameter == "self"
        assert "Execute" not in server.log.read_text()
        column = np.ones((1024, 1), np.float32)
        with pytest.raises(TooLargeError) as caught:
            client.run(l1_loss_backward, ONE, column, column.T)
        assert caught.value.details["setting"] == "memory_limit"


@LINUX
@pytest.mark.more
def test_memory_of_a_server_stays_near_that_of_the_tensors() -> None:
    """64 MiB beside 2 x 256 MiB are caches, threads and the last chunks."""
    large = np.ones(256 * MIB // 4, np.float32)
    with served() as (server, client):
        client.run(l1_loss_backward, ONE, large[: 10 * MIB], ONE, reduction=2)
        before = wire.resident_bytes(server.process.pid)
        client.run(l1_loss_backward, ONE, large, ONE, reduction=2)
        assert wire.peak_bytes(server.process.pid) - before < 512 * MIB + 64 * MIB


@LINUX
@pytest.mark.more
def test_one_long_row_takes_little_beside_its_answer() -> None:
    """It took ten times as much once. The answer comes in chunks, which are not copied."""
    row = np.broadcast_to(np.float16(0.5), (32 * MIB,))
    with served("--memory-limit=256MiB") as (server, client), client.pipeline() as pipeline:
        before = wire.peak_bytes(server.process.pid)
        answer = pipeline.submit(softmax_backward, row, row, dim=0).result(wire.PATIENCE)
        assert answer.nbytes == 64 * MIB
        assert wire.peak_bytes(server.process.pid) - before < 64 * MIB + 96 * MIB


@LINUX
@pytest.mark.long
def test_three_gibibytes_in_one_tensor_go_there_and_back_in_little_more_memory() -> None:
    array = np.zeros(3 * GIB // 4, np.float32)
    array[::1000] = 2.0
    with served("--memory-limit=8GiB", "--overcommit", timeout=300) as (server, client):
        client.run(l1_loss_backward, ONE, array[: 10 * MIB], ONE, reduction=2)
        mine, its = wire.peak_bytes(os.getpid()), wire.resident_bytes(server.process.pid)
        out = client.run(l1_loss_backward, ONE, array, ONE, reduction=2)
        mine, its = wire.peak_bytes(os.getpid()) - mine, wire.peak_bytes(server.process.pid) - its
        figures(f"client +{mine / MIB:,.0f} MiB", f"server +{its / MIB:,.0f} MiB")
        assert its < 6 * GIB + 128 * MIB
        assert mine < 3 * GIB + 128 * MIB
    assert out.nbytes == 3 * GIB
    for start in range(0, array.size, 2**26):
        part = slice(start, start + 2**26)
        assert np.array_equal(out[part], np.sign(array[part] - 1))


@pytest.mark.long
def test_a_small_request_may_have_an_answer_of_more_than_a_message_holds() -> None:
    unread = np.broadcast_to(np.float32(0), (2**29 + 2**20,))  # only its shape is sent
    with served("--memory-limit=8GiB", "--overcommit", timeout=300) as (_, client):
        out = client.run(kl_div_backward, ONE, unread, ONE, reduction=2)
    assert (out.nbytes, out.min(), out.max()) == (2**31 + 2**22, -1, -1)
