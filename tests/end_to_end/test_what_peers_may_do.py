"""gRPC ignores options that it does not know: each is tested by what it does."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

import npucall_client
from npucall_client.testing import ServerProcess, running_server
from npucall_server.accounts.budget import CONNECTION_CALLS
from npucall_server.serving import grpc_server

from . import wire

SETTINGS = 4
"""The frame that a server of HTTP/2 sends first."""
MAX_CONCURRENT_STREAMS = 3
CONNECTIONS = 6


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = (*wire.ENDLESS_LIMIT, f"--max-connections={CONNECTIONS}", "--max-message-bytes=1MiB")
    with running_server(*flags) as server:
        yield server


def connect(target: str) -> socket.socket:
    host, _, port = target.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=wire.PATIENCE)
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + bytes([SETTINGS]) + bytes(5)
    )
    return connection


def settings_of(connection: socket.socket) -> dict[int, int]:
    """What the server says of itself first; empty where it closes the connection."""
    header = connection.recv(9, socket.MSG_WAITALL)
    if len(header) < 9:
        return {}
    assert header[3] == SETTINGS
    body = connection.recv(int.from_bytes(header[:3]), socket.MSG_WAITALL)
    return dict(struct.iter_unpack(">HI", body))


def test_a_connection_has_a_limit_of_calls_at_a_time(server: ServerProcess) -> None:
    with connect(server.target) as connection:
        assert settings_of(connection)[MAX_CONCURRENT_STREAMS] == CONNECTION_CALLS


@pytest.mark.more
def test_further_connections_are_closed_and_idle_ones_make_room(server: ServerProcess) -> None:
    with ExitStack() as open_:
        found = [
            settings_of(open_.enter_context(connect(server.target))) for _ in range(CONNECTIONS + 3)
        ]
        assert len([each for each in found if each]) in (CONNECTIONS - 1, CONNECTIONS)
        with npucall_client.connect(server.target, connect_timeout=wire.PATIENCE) as client:
            assert client.server_info().calls_in_flight == 0
    wire.until(lambda: "idle connections closed" in server.log.read_text(), "it is logged")


def test_a_longer_message_than_the_setting_is_refused(server: ServerProcess) -> None:
    with wire.bare_channel(server.target) as channel:
        assert wire.refusal(channel, "Execute", bytes(2**20 + 1)) == "RESOURCE_EXHAUSTED"


def test_a_refused_call_counts_as_a_call_of_its_connection() -> None:
    """Whoever sends much without a call is taken for a flood, and cut."""
    with wire.server_here(max_message_bytes=2**20) as server:
        for request in (bytes(2**20 + 1), b"no request"):
            with wire.bare_channel(server.address) as channel:
                assert wire.refusal(channel, "Execute", request) != "OK"
        assert len(server.parts.core.peers.ended) == 2


def test_who_is_silent_for_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without a message; a stream without a call, which ends well; a connection without."""
    monkeypatch.setattr(grpc_server, "IDLE_SECONDS", 1.0)
    silence: Any = iter(lambda: time.sleep(wire.PATIENCE), None)
    with (
        wire.server_here(peer_timeout=1) as server,
        wire.bare_channel(server.address) as channel,
        connect(server.address) as connection,
    ):
        call: Any = channel.stream_unary(f"/{wire.SERVICE}/Execute").future(silence)
        stream: Any = channel.stream_stream(f"/{wire.SERVICE}/ExecuteStream")(silence)
        assert call.exception(timeout=wire.PATIENCE).code() is grpc.StatusCode.CANCELLED
        assert next(stream, None) is None
        call.cancel()
        stream.cancel()
        while connection.recv(2**16):
            pass
