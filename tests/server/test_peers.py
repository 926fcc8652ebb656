"""Waits for peers: progress keeps them, standing still ends them."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any

import pytest

from npucall.errors import MessageError
from npucall_server import peers as module
from npucall_server.ledger import Ledger
from npucall_server.log import Log
from npucall_server.peers import Peers
from npucall_server.watch import Watch

from .fakes import PATIENCE, FakeCaller, ledger, until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Clock:
    """Time and bytes as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.moved: dict[str, int] = {}
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        self.log = io.StringIO()
        self.peers = Peers(Log(stream=self.log), 30.0, lambda: self.moved, lambda: self.now)

    def after(self, seconds: float, moved: int | None = None) -> None:
        self.now += seconds
        if moved is not None:
            self.moved["fake"] = moved
        self.peers.look()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def begin(clock: Clock, room: Ledger | None = None) -> FakeCaller:
    caller: Any = FakeCaller()
    clock.peers.begin(caller, "its answer to be read", room)
    return caller  # type: ignore[no-any-return]


def test_a_peer_that_stands_still_is_cut_and_the_log_says_so(clock: Clock) -> None:
    caller = begin(clock)
    clock.after(29)
    assert caller.is_active()
    clock.after(1)
    assert not caller.is_active()
    until(lambda: "waited 30 s for its answer to be read" in clock.log.getvalue(), "it is logged")


def test_a_peer_whose_bytes_move_is_never_cut(clock: Clock) -> None:
    caller = begin(clock)
    for count in range(100):
        clock.after(20, moved=1000 * count)
    assert caller.is_active()


def test_a_message_has_a_third_of_the_time_for_its_first_bytes(clock: Clock) -> None:
    caller = begin(clock, ledger())
    clock.after(9.9)
    assert caller.is_active()
    clock.after(0.1)
    assert not caller.is_active()


def test_the_pings_of_a_connection_are_no_progress(clock: Clock) -> None:
    caller = begin(clock)
    for count in range(4):
        clock.after(10, moved=17 * count)
    assert not caller.is_active()


def test_a_wait_that_has_ended_cuts_nobody(clock: Clock) -> None:
    caller: Any = FakeCaller()
    wait = clock.peers.begin(caller, "anything")
    clock.peers.end(wait)
    clock.after(1000)
    assert caller.is_active()


def test_where_others_want_the_room_patience_is_short(clock: Clock) -> None:
    room: Any = type("Wanted", (), {"is_wanted": True})()
    caller = begin(clock, room)
    clock.after(1.5, moved=0)  # progress can be seen
    assert caller.is_active()
    clock.after(1.5, moved=0)
    assert not caller.is_active()


def test_what_no_kernel_counts_keeps_the_usual_patience(clock: Clock) -> None:
    """Of a Unix socket nobody knows whether it moves."""
    room: Any = type("Wanted", (), {"is_wanted": True})()
    caller = begin(clock, room)
    clock.after(9.9)
    assert caller.is_active()


def test_a_call_without_a_message_is_refused() -> None:
    caller: Any = FakeCaller()
    with pytest.raises(MessageError, match="found none"):
        Peers(Log(stream=io.StringIO()), PATIENCE).message(iter([]), caller, ledger())


def test_a_message_holds_its_room_until_it_has_come() -> None:
    caller: Any = FakeCaller()
    room, may_come, held = ledger(1), threading.Event(), []

    def messages() -> Iterator[bytes]:
        held.append(room.used)
        may_come.set()
        yield b"message"

    assert (
        Peers(Log(stream=io.StringIO()), PATIENCE).message(messages(), caller, room) == b"message"
    )
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
