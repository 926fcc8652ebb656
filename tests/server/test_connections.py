"""What the kernel counts of connections, under the names that gRPC gives to peers."""

from __future__ import annotations

import io
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import grpc
import pytest

from npucall_server import connections
from npucall_server.connections import IdleConnections, bytes_moved
from npucall_server.log import Log

from .fakes import PATIENCE, until


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_bytes_that_a_peer_sends_are_counted(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as listener,
        closing(socket.create_connection(listener.getsockname()[:2])) as peer,
        closing(listener.accept()[0]),
    ):
        port = peer.getsockname()[1]
        name = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
        before = bytes_moved()[name]
        peer.sendall(bytes(1000))
        until(lambda: bytes_moved()[name] == before + 1000, "they are counted")


@pytest.mark.parametrize(
    ("listen", "target"), [("127.0.0.1", "127.0.0.1"), ("[::]", "127.0.0.1"), ("[::1]", "[::1]")]
)
def test_grpc_calls_a_peer_by_the_same_name(listen: str, target: str) -> None:
    names: list[str] = []

    def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
        names.append(context.peer())
        return request if context.peer() in bytes_moved() else b"unknown"

    server = grpc.server(ThreadPoolExecutor(1))
    handlers = {"Echo": grpc.unary_unary_rpc_method_handler(handle)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    port = server.add_insecure_port(f"{listen}:0")
    server.start()
    try:
        with grpc.insecure_channel(f"{target}:{port}") as channel:
            answer = channel.unary_unary("/test/Echo")(b"known", timeout=PATIENCE)  # type: ignore[call-arg]
    finally:
        server.stop(0).wait()
    assert (answer, len(names)) == (b"known", 1)


def silence(connection: socket.socket) -> int:
    """Milliseconds since something came, as the kernel tells."""
    found: int = connections._SILENCE.unpack_from(
        connections._info(connection), connections._SILENCE_AT
    )[0]
    return found


def test_connections_without_a_call_are_closed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of six where there may be four: one has a call, from one something has just come."""
    with ExitStack() as open_:
        listener = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = listener.getsockname()
        peers = [open_.enter_context(socket.create_connection(address)) for _ in range(6)]
        served = [open_.enter_context(listener.accept()[0]) for _ in peers]
        busy = {f"ipv4:127.0.0.1:{peer.getsockname()[1]}" for peer in peers[:1]}
        until(lambda: min(map(silence, served)) > 20, "none has moved for a while")
        peers[1].sendall(b"moved")
        until(lambda: silence(served[1]) < silence(served[2]), "the kernel has seen it")
        seen = {connections._name(each): connections._info(each) for each in served}
        monkeypatch.setattr(connections, "_info", lambda each: seen[connections._name(each)])
        monkeypatch.setattr(connections, "_IDLE_MS", min(map(silence, served[2:])))
        log = io.StringIO()
        IdleConnections(address[1], 4, lambda: busy, Log(stream=log)).look()
        for each in served:
            each.settimeout(PATIENCE)
        assert [each.recv(5) for each in served[1:]] == [b"moved", b"", b"", b"", b""]
        served[0].settimeout(0)
        with pytest.raises(BlockingIOError):
            served[0].recv(1)
    assert '"connections": 4' in log.getvalue()
