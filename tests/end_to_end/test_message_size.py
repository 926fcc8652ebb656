"""Calls over a limit: refused before they are sent where the client knows, else by gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import npucall_client
from npucall.errors import TooLargeError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_client.testing import running_server

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client
    from npucall_client.testing import ServerProcess

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

LIMIT = 2 * 2**20
ONE = np.ones((), np.float32)
COLUMN = np.ones((1024, 1), np.float32)


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server(f"--max-message-bytes={LIMIT}") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with npucall_client.connect(server.target) as client:
        yield client


def test_a_call_over_the_limit_of_a_message_travels_in_chunks(
    server: ServerProcess, client: Client
) -> None:
    before = server.log.read_text().count('"method": "ExecuteStream"')
    array = np.full(LIMIT // 4, 2, np.float32)
    out = client.run(l1_loss_backward, ONE, array, ONE, reduction=2)
    assert np.unique(out).tolist() == [1.0]
    wire.until(
        lambda: server.log.read_text().count('"method": "ExecuteStream"') == before + 1,
        "it is logged",
    )


def test_a_call_over_the_memory_limit_is_not_sent() -> None:
    with (
        running_server(f"--memory-limit={LIMIT}", "--max-message-bytes=8MiB") as server,
        npucall_client.connect(server.target) as client,
    ):
        message = r"\(setting memory_limit of the server\), found 20972\d\d; the largest .* self"
        with pytest.raises(TooLargeError, match=message) as caught:
            client.run(l1_loss_backward, ONE, np.ones(LIMIT // 4, np.float32), ONE)
        assert server.stop() == 0
        log = server.log.read_text()
    assert caught.value.details == {"limit": str(LIMIT), "setting": "memory_limit"}
    assert caught.value.parameter == "self"
    assert "Execute" not in log


def test_a_message_of_nearly_the_limit_is_answered(client: Client) -> None:
    array = np.ones(LIMIT // 4 - 256, np.float32)  # a KiB for the call
    assert client.run(l1_loss_backward, ONE, array, ONE).shape == array.shape


def test_grpc_itself_refuses_what_is_sent_all_the_same(server: ServerProcess) -> None:
    with wire.bare_channel(server.target) as channel:
        assert wire.refusal(channel, "Execute", bytes(LIMIT + 1)) == "RESOURCE_EXHAUSTED"
        assert wire.calls_in_flight(channel) == 0


@pytest.mark.parametrize("missing", [0, 4, 100, 200, 300])
def test_a_call_near_the_limit_travels_one_way_or_the_other(client: Client, missing: int) -> None:
    array = np.ones((LIMIT - missing) // 4, np.float32)
    assert client.run(l1_loss_backward, ONE, array, ONE).shape == array.shape


def test_calls_of_any_size_pass_a_server_that_takes_short_messages_alone() -> None:
    """A frame of a stream is a message too, and a call and its request id stand in the first."""
    limit, request_id = 64 * 2**10, "x" * 128
    with (
        running_server(f"--max-message-bytes={limit}") as server,
        npucall_client.connect(server.target) as anonymous,
    ):
        client = anonymous.options(request_id=request_id)
        with client.pipeline() as pipeline:
            for size in (*range(limit - 1024, limit + 1024, 64), LIMIT):
                array = np.full(size // 4, 2, np.float32)
                arguments = (l1_loss_backward, ONE, array, ONE, 2)
                for out in client.run(*arguments), pipeline.submit(*arguments).result():
                    assert (out.size, np.unique(out).tolist()) == (array.size, [1.0])
            column, row = np.ones((1024, 1), np.float32), np.zeros((1, 1024), np.float32)
            arguments = (l1_loss_backward, ONE, column, row, 2)
            for out in client.run(*arguments), pipeline.submit(*arguments).result():
                assert (out.nbytes, np.unique(out).tolist()) == (4 * 2**20, [1.0])


def test_a_reply_may_be_larger_than_any_request(client: Client) -> None:
    column, row = np.ones((1024, 1), np.float32), np.zeros((1, 1024), np.float32)
    out = client.run(l1_loss_backward, ONE, column, row, reduction=2)
    assert out.nbytes == 2 * LIMIT
    assert np.unique(out).tolist() == [1.0]


def test_a_call_over_the_memory_limit_names_it() -> None:
    with (
        running_server("--memory-limit=1MiB") as server,
        npucall_client.connect(server.target) as client,
        pytest.raises(TooLargeError, match="memory_limit") as caught,
    ):
        client.run(l1_loss_backward, ONE, COLUMN, COLUMN.T)
    assert caught.value.details["setting"] == "memory_limit"
