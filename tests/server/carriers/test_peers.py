"""Waits for peers: progress keeps them, standing still ends them."""

from __future__ import annotations

import io
import socket
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.server.fakes import PATIENCE, FakeCaller, FakeClock, ledger, until

from npucall.errors import MessageError
from npucall_server.carriers import connections
from npucall_server.carriers.connections import IdleConnections, bytes_moved
from npucall_server.carriers.peers import ANSWER, Peers, Visitor
from npucall_server.serving.watch import Watch
from npucall_server.telemetry.log import Log


class Reader(FakeCaller, Visitor):  # type: ignore[misc]  # who it is has no part in this
    """A caller that has to make progress."""


class Waits(Peers):
    """On a fake clock, with bytes that move as a test says."""

    def __init__(self) -> None:
        self.time, self.moved, self.text = FakeClock(), dict[str, int](), io.StringIO()
        super().__init__(Log(stream=self.text), 30.0, lambda: self.moved, self.time.monotonic)

    def after(self, seconds: float, moved: int | None = None) -> None:
        self.time.advance(seconds)
        if moved is not None:
            self.moved["fake"] = moved
        self.look()


WANTED: Any = SimpleNamespace(is_wanted=True)
"""Room that others want."""
QUIET: Any = SimpleNamespace(is_wanted=False)
STEPS: dict[str, tuple[Any, list[tuple[float, int | None]], bool]] = {
    "it stands still for a while": (None, [(29, None)], True),
    "it stands still": (None, [(29, None), (1, None)], False),
    "its bytes move": (None, [(20, 1000 * count) for count in range(100)], True),
    "pings of its connection move": (None, [(10, 17 * count) for count in range(3)], False),
    "its message is awaited, for a third of the time": (QUIET, [(9.9, None)], True),
    "its message does not begin": (QUIET, [(9.9, None), (0.1, None)], False),
    "others want the room, and progress can be seen": (WANTED, [(1.5, 0)], True),
    "others want the room, and there is none": (WANTED, [(1.5, 0), (1.5, 0)], False),
    # Of a Unix socket nobody knows whether it moves.
    "others want the room, and no kernel counts": (WANTED, [(9.9, None)], True),
}
"""The room that a peer holds; seconds that pass with what has moved by then; whether it stays."""


@pytest.mark.parametrize("what", STEPS)
def test_a_peer_is_cut_where_it_makes_no_progress(what: str) -> None:
    room, steps, stays = STEPS[what]
    waits, caller = Waits(), Reader()
    waits.enter(caller)
    caller.since, caller.awaited, caller.room = waits.clock(), ANSWER, room
    for seconds, moved in steps:
        assert caller.is_active()
        waits.after(seconds, moved)
    assert caller.is_active() == stays
    until(lambda: stays == ("s for its answer to be read" not in waits.text.getvalue()), "its line")


def test_nobody_is_cut_while_the_server_works_or_once_the_call_is_over() -> None:
    waits, working, over = Waits(), Reader(), Reader()
    waits.enter(working)
    waits.enter(over)
    assert list(waits.read((each for each in [b"answer"]), over)) == [b"answer"]
    over.cancel()
    over.awaited = ANSWER
    waits.after(1000)
    assert working.is_active()
    assert "cut" not in waits.text.getvalue()


def test_an_answer_that_is_not_read_whole_is_closed_at_once() -> None:
    closed: list[bool] = []

    def answers() -> Generator[bytes, None, None]:
        try:
            yield b"first"
        finally:
            closed.append(True)

    reading = Waits().read(answers(), Reader())
    assert next(reading) == b"first"
    reading.close()  # type: ignore[attr-defined]  # a generator
    assert closed == [True]


def test_a_call_without_a_message_is_refused() -> None:
    caller: Any = FakeCaller()
    with pytest.raises(MessageError, match="found none"):
        Peers(Log(stream=io.StringIO()), PATIENCE).message(iter([]), caller, ledger())


def test_a_message_holds_its_room_until_it_has_come() -> None:
    caller: Any = FakeCaller()
    room, held = ledger(1), []

    def messages() -> Iterator[bytes]:
        held.append(room.used)
        yield b"message"

    peers = Peers(Log(stream=io.StringIO()), PATIENCE)
    assert peers.message(messages(), caller, room) == b"message"
    assert (held, room.used) == ([1], 0)


def test_a_watch_looks_again_and_again_whatever_is_raised() -> None:
    log, looks = io.StringIO(), []

    def broken() -> None:
        looks.append("broken")
        raise ZeroDivisionError

    watch = Watch(0.001, Log(stream=log), broken, lambda: looks.append("other"))
    watch.start()
    until(lambda: looks[:4] == ["broken", "other"] * 2, "both looked twice")
    watch.stop()
    assert "ZeroDivisionError" in log.getvalue()


# --- What the kernel counts of connections, under the names that gRPC gives to peers --------------


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
        seen = {connections.name_of(each): connections._info(each) for each in served}
        monkeypatch.setattr(connections, "_info", lambda each: seen[connections.name_of(each)])
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
