"""Calls over a limit: refused before they are sent where the client knows, else by gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
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


def test_a_message_over_the_limit_is_not_sent(server: ServerProcess, client: Client) -> None:
    before = server.log.read_text().count('"method": "Execute"')
    with pytest.raises(TooLargeError, match="the largest tensor is self with 2097152") as caught:
        client.run(l1_loss_backward, ONE, np.ones(LIMIT // 4, np.float32), ONE)
    assert caught.value.details == {"limit": str(LIMIT), "setting": "max_message_bytes"}
    assert caught.value.parameter == "self"
    assert server.log.read_text().count('"method": "Execute"') == before


def test_a_message_of_nearly_the_limit_is_answered(client: Client) -> None:
    array = np.ones(LIMIT // 4 - 256, np.float32)  # a KiB for the call
    assert client.run(l1_loss_backward, ONE, array, ONE).shape == array.shape


def test_grpc_itself_refuses_what_is_sent_all_the_same(server: ServerProcess) -> None:
    with wire.bare_channel(server.target) as channel:
        assert wire.refusal(channel, "Execute", bytes(LIMIT + 1)) == "RESOURCE_EXHAUSTED"
        assert wire.calls_in_flight(channel) == 0


def test_grpcs_refusal_is_the_same_error() -> None:
    """Below a MiB the client does not look at the server's limits."""
    with (
        running_server("--max-message-bytes=64KiB") as server,
        npucall_client.connect(server.target) as client,
        pytest.raises(TooLargeError) as caught,
    ):
        client.run(l1_loss_backward, ONE, np.ones(2**16, np.float32), ONE)
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED


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
