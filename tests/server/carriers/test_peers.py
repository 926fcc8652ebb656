"""Waits for peers: progress keeps them, standing still ends them."""

import io
import socket
import struct
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.server.fakes import PATIENCE, FakeCaller, FakeClock, ledger, until

from npucall.errors import MessageError
from npucall.limits import MIB
from npucall_server.carriers import connections
from npucall_server.carriers.connections import Connections, bytes_moved
from npucall_server.carriers.multiplex.call import StreamCaller
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


PLACE: Any = SimpleNamespace(idle_since=None)
"""What a message holds on its way in."""
STEPS: dict[str, tuple[Any, list[tuple[float, int | None]], bool]] = {
    "it stands still for a while": (None, [(29, None)], True),
    "it stands still": (None, [(29, None), (1, None)], False),
    "its bytes move": (None, [(20, 1000 * count) for count in range(100)], True),
    "pings of its connection move": (None, [(10, 17 * count) for count in range(3)], False),
    "its message is awaited, for a third of the time": (PLACE, [(9.9, None)], True),
    "its message does not begin": (PLACE, [(9.9, None), (0.1, None)], False),
}
"""What a peer holds; seconds that pass with what has moved by then; whether it stays."""


@pytest.mark.parametrize("what", STEPS)
def test_a_peer_is_cut_where_it_makes_no_progress(what: str) -> None:
    place, steps, stays = STEPS[what]
    waits, caller = Waits(), Reader()
    waits.enter(caller)
    caller.since, caller.awaited, caller.arriving = waits.clock(), ANSWER, place
    for seconds, moved in steps:
        assert caller.is_active()
        waits.after(seconds, moved)
    assert caller.is_active() == stays
    until(lambda: stays == ("s for its answer to be read" not in waits.text.getvalue()), "its line")


def test_an_answer_has_an_end_whatever_else_moves_on_its_connection() -> None:
    """Others read a MiB a second there: 30 s, 16 s for its own MiB, and 30 s without progress."""
    waits, caller = Waits(), Reader()
    waits.enter(caller)
    waits.answers(caller, 1 << 20)
    for second in range(46):
        waits.after(1.0, second << 20)
    assert caller.is_active()
    for second in range(46, 77):
        waits.after(1.0, second << 20)
    assert not caller.is_active()


def test_a_message_has_an_end_and_is_idle_unless_all_of_its_connection_come_fast() -> None:
    """Two are awaited there."""
    waits, room, callers = Waits(), ledger(10), [Reader(), Reader()]
    waits.enter(callers[1])
    begun = callers[1].since = waits.clock()
    callers[1].awaited = ANSWER
    idle: list[float | None] = []

    def messages() -> Iterator[bytes]:
        (entry,) = room._owners["fake"].entries
        for moved in 0, 70_000, 80_000:
            waits.after(1.0, moved)
            idle.append(entry.idle_since)
        for second in range(300):
            assert callers[0].is_active()
            waits.after(1.0, (1 + second) << 20)
        waits.after(10.0)
        assert not callers[0].is_active()
        yield b""

    waits.message(messages(), callers[0], room)
    assert idle == [begun - 1.0, begun + 2.0, begun + 2.0]


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


def test_a_call_that_its_caller_has_left_already_holds_nothing() -> None:
    stream: Any = Reader()
    waits, caller = Waits(), StreamCaller(stream, "", None)
    caller.cancel()
    waits.enter(caller)
    waits.answers_counted(caller, 9, waits.listings)
    assert waits.listings.used == 0
    waits.after(1000)
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


class Port:
    """Connections of a listener at which ``most`` may be open, and what looks after them."""

    def __init__(self, open_: ExitStack, most: int) -> None:
        listener = open_.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._open, self._address = open_, listener.getsockname()
        self._listener, self.text = listener, io.StringIO()
        self._served: dict[str, socket.socket] = {}
        self.busy: set[str] = set()
        log = Log(stream=self.text)
        peers = Peers(log, 1.0)
        self.finished, self.ended = peers.finished, peers.ended
        self.resident, self.now = 0, 0.0
        self.looks = Connections(
            {self._address[1]: most}, lambda: self.busy, peers, log,
            lambda: self.resident, lambda: self.now,
        )  # fmt: skip

    def connect(self) -> tuple[socket.socket, str]:
        """A peer, and its name."""
        peer = self._open.enter_context(socket.create_connection(self._address))
        served = self._open.enter_context(self._listener.accept()[0])
        self._served[name := connections.name_of(served)] = served
        return peer, name

    def come(self, peer: socket.socket) -> int:
        """Bytes from it, which are read."""
        name = f"ipv4:127.0.0.1:{peer.getsockname()[1]}"
        served = self._served[name]
        served.setblocking(False)
        with suppress(BlockingIOError):
            while served.recv(MIB):
                pass
        return connections._bytes_come({name: served})[name]

    def grow(self) -> None:
        """The process does, so that somebody looks."""
        self.resident += 32 * MIB
        self.looks.look()


def is_closed(peer: socket.socket) -> bool:
    peer.settimeout(0.05)
    try:
        return not peer.recv(1)
    except TimeoutError:
        return False


def test_connections_without_a_call_are_closed_for_others_first_those_that_never_had_one() -> None:
    """Of seven where there may be six. One has a call, two had one, one has just come."""
    with ExitStack() as open_:
        port = Port(open_, 6)
        peers, names = zip(*(port.connect() for _ in range(6)), strict=True)
        port.busy.add(names[2])
        port.finished.update({names[0]: 2, names[1]: 1, "gone": 3})
        port.grow()
        assert not any(map(is_closed, peers))  # they may have come this moment
        new, _ = port.connect()
        port.grow()
        assert [is_closed(each) for each in (*peers, new)] == [
            False,
            True,
            False,
            *[True] * 3,
            False,
        ]
        assert set(port.finished) == set(names[:2])
    assert '"connections": 4' in port.text.getvalue()


def test_a_connection_may_end_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four, of which there may be two. Two end after they have been found."""
    with ExitStack() as open_:
        port = Port(open_, 2)
        peers = [port.connect()[0] for _ in range(4)]
        port.grow()

        def found() -> Iterator[tuple[str, socket.socket]]:
            yield from every()
            for each in peers[:2]:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                each.close()

        every = connections._connections
        monkeypatch.setattr(connections, "_connections", found)
        port.grow()
        assert [is_closed(each) for each in peers[2:]] == [True, False]


@pytest.mark.parametrize("grows", [True, False])
def test_who_sends_much_and_no_call_is_closed_once_the_process_grows_or_later(grows: bool) -> None:
    """Of five. One has a call, one had one, one has it late, one sends nothing."""
    with ExitStack() as open_:
        port = Port(open_, 10_000)
        peers, names = zip(*(port.connect() for _ in range(5)), strict=True)
        port.busy.add(names[1])
        port.ended[names[2]] = 1
        for peer in peers[:4]:
            peer.setblocking(False)
            while port.come(peer) <= MIB:
                peer.send(bytes(MIB))
        port.looks.look()
        if grows:
            port.grow()
        else:
            port.now += 10
            port.looks.look()
        assert not any(map(is_closed, peers))
        port.busy.add(names[3])
        port.looks.look()
        assert [is_closed(each) for each in peers] == [True, False, False, False, False]
