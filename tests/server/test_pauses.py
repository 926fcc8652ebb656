"""A call that keeps its turn for long: others get it meanwhile, and its own end is heard."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from npucall.errors import CancelledError, DeadlineError, DeviceLostError
from npucall_server import turn as turn_module

from .scripted import (
    PATIENCE,
    ScriptedCaller,
    ScriptedDevice,
    execute,
    executor,
    is_at_rest,
    prepared,
    until,
    waiting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_server.devices.base import Turn

CALL = prepared()


@pytest.fixture(autouse=True)
def pauses_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_module, "_SECONDS_BETWEEN_PAUSES", 0.0)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def looping(turn: Turn) -> None:
    """A run that pauses in one turn for ever."""
    with turn():
        while True:
            turn.pause()


def test_who_waits_has_the_turn_during_a_pause_and_gives_it_back(pool: ThreadPoolExecutor) -> None:
    small_ran, holding = threading.Event(), threading.Event()

    def run(turn: Turn) -> None:
        with turn():
            if turn.owner == "small":
                small_ran.set()
                return
            holding.set()
            while not small_ran.is_set():
                turn.pause()

    subject = executor(ScriptedDevice(run))
    call = pool.submit(execute, subject, CALL, {}, ScriptedCaller())
    assert holding.wait(PATIENCE)
    execute(subject, CALL, {}, ScriptedCaller(peer="small"))
    call.result(PATIENCE)
    assert is_at_rest(subject)


def test_nobody_else_computes_while_the_turn_is_held_again(pool: ThreadPoolExecutor) -> None:
    held, most, lock = 0, 0, threading.Lock()

    def run(turn: Turn) -> None:
        nonlocal held, most
        with turn():
            for _ in range(50):
                with lock:
                    held += 1
                    most = max(most, held)
                with lock:
                    held -= 1
                turn.pause()

    subject = executor(ScriptedDevice(run, lanes=2))
    for call in [pool.submit(execute, subject, CALL, {}, ScriptedCaller()) for _ in range(6)]:
        call.result(PATIENCE)
    assert most <= 2
    assert is_at_rest(subject)


def test_a_deadline_ends_a_call_in_a_pause() -> None:
    subject = executor(ScriptedDevice(looping))
    with pytest.raises(DeadlineError, match="the deadline of the call ended"):
        execute(subject, CALL, {}, ScriptedCaller(remaining=0.05))
    assert is_at_rest(subject)


def test_the_servers_own_timeout_ends_a_call_in_a_pause() -> None:
    subject = executor(ScriptedDevice(looping), call_timeout=0.05)
    with pytest.raises(DeadlineError, match="call_timeout"):
        execute(subject, CALL, {}, ScriptedCaller())
    assert is_at_rest(subject)


def test_a_cancel_ends_a_call_in_a_pause(pool: ThreadPoolExecutor) -> None:
    subject, caller = executor(ScriptedDevice(looping)), ScriptedCaller()
    call = pool.submit(execute, subject, CALL, {}, caller)
    until(lambda: subject.turns.running, "it holds the turn")
    caller.cancel()
    with pytest.raises(CancelledError):
        call.result(PATIENCE)
    assert is_at_rest(subject)


def test_a_call_that_ends_while_it_waits_to_go_on_gives_nothing_back_twice(
    pool: ThreadPoolExecutor,
) -> None:
    """Its turn is another call's by then, which has to keep it."""
    opened, taken = threading.Event(), threading.Event()

    def run(turn: Turn) -> None:
        with turn():
            if turn.owner == "keeper":
                taken.set()
                assert opened.wait(PATIENCE)
                return
            while True:
                turn.pause()

    subject, caller = executor(ScriptedDevice(run)), ScriptedCaller()
    call = pool.submit(execute, subject, CALL, {}, caller)
    until(lambda: subject.turns.running, "it holds the turn")
    kept = pool.submit(execute, subject, CALL, {}, ScriptedCaller(peer="keeper"))
    assert taken.wait(PATIENCE)
    until(lambda: waiting(subject) == 1, "the first waits to go on")
    caller.cancel()
    with pytest.raises(CancelledError):
        call.result(PATIENCE)
    assert subject.turns.running
    opened.set()
    kept.result(PATIENCE)
    assert is_at_rest(subject)


def test_a_lost_device_ends_a_call_in_a_pause(pool: ThreadPoolExecutor) -> None:
    subject = executor(ScriptedDevice(looping))
    call = pool.submit(execute, subject, CALL, {}, ScriptedCaller())
    until(lambda: subject.turns.running, "it holds the turn")
    subject.lose(lambda: DeviceLostError("lost"))
    with pytest.raises(DeviceLostError):
        call.result(PATIENCE)


def test_between_two_pauses_a_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_module, "_SECONDS_BETWEEN_PAUSES", 1e9)
    caller = ScriptedCaller()

    def run(turn: Turn) -> None:
        with turn():
            turn.pause()
            caller.cancel()
            turn.pause()

    assert execute(executor(ScriptedDevice(run)), CALL, {}, caller).outputs == [[b"result"]]
