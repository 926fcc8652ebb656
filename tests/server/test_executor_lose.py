"""A device that is lost: who waits and who comes is told so, and nobody gets a turn any more."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

from npucall.errors import DeviceLostError, DrainingError
from npucall_server.turns import Turns

from .scripted import (
    PATIENCE,
    ScriptedCaller,
    ScriptedDevice,
    Taker,
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


def lost() -> DeviceLostError:
    return DeviceLostError("device: lost", retry_after=5.0)


class Held:
    """A device whose one turn is held, by the call ``running``, until the test lets go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.entered = 0
        self.pool = ThreadPoolExecutor(16)
        self.executor = executor(ScriptedDevice(self._run), queue_length=16)
        self.running = self.pool.submit(execute, self.executor, CALL, {}, ScriptedCaller())
        until(lambda: self.entered == 1, "it holds the turn")

    def _run(self, turn: Turn) -> None:
        with turn():
            self.entered += 1
            assert self.let_go.wait(PATIENCE)


@pytest.fixture
def held() -> Iterator[Held]:
    held = Held()
    yield held
    held.let_go.set()
    held.pool.shutdown()


def test_calls_that_wait_are_told_at_once_and_never_run(held: Held) -> None:
    calls = [held.pool.submit(execute, held.executor, CALL, {}, ScriptedCaller()) for _ in range(5)]
    until(lambda: waiting(held.executor) == 5, "they wait")
    held.executor.lose(lost)
    for call in calls:
        with pytest.raises(DeviceLostError) as caught:
            call.result(PATIENCE)
        assert caught.value.retry_after == 5.0
    assert not held.running.done()
    assert held.entered == 1


def test_a_plan_that_waits_is_told_too(held: Held) -> None:
    turn = held.executor.turn(ScriptedCaller())
    plan = held.pool.submit(held.executor.plan, CALL, turn)
    until(lambda: waiting(held.executor) == 1, "it waits")
    held.executor.lose(lost)
    with pytest.raises(DeviceLostError):
        plan.result(PATIENCE)


def test_the_call_that_runs_has_its_answer(held: Held) -> None:
    held.executor.lose(lost)
    held.let_go.set()
    assert held.running.result(PATIENCE).outputs == [[b"result"]]
    assert is_at_rest(held.executor)


def test_calls_that_come_are_told_before_they_count(held: Held) -> None:
    held.executor.lose(lost)
    with pytest.raises(DeviceLostError):
        execute(held.executor, CALL, {}, ScriptedCaller())
    with pytest.raises(DeviceLostError):
        held.executor.plan(CALL, held.executor.turn(ScriptedCaller()))
    assert held.executor.calls_in_flight == 1


def test_calls_that_come_are_told_so_though_the_queue_is_full() -> None:
    """A full queue is for now, and another retry delay."""

    def run(turn: Turn) -> None:
        with turn():
            subject.lose(lost)
            with pytest.raises(DeviceLostError):
                execute(subject, CALL, {}, ScriptedCaller())

    subject = executor(ScriptedDevice(run), queue_length=0)
    execute(subject, CALL, {}, ScriptedCaller())
    assert is_at_rest(subject)


def test_a_running_call_that_asks_whether_it_should_go_on_is_told() -> None:
    def run(turn: Turn) -> None:
        with turn():
            subject.lose(lost)
            turn.check()

    subject = executor(ScriptedDevice(run))
    with pytest.raises(DeviceLostError):
        execute(subject, CALL, {}, ScriptedCaller())
    assert is_at_rest(subject)


def test_a_call_gets_no_further_turn() -> None:
    blocks: list[str] = []

    def run(turn: Turn) -> None:
        for block in "ab":
            with turn():
                blocks.append(block)
                subject.lose(lost)

    subject = executor(ScriptedDevice(run))
    with pytest.raises(DeviceLostError):
        execute(subject, CALL, {}, ScriptedCaller())
    assert blocks == ["a"]
    assert is_at_rest(subject)


class LosingCaller(ScriptedCaller):
    """Asked whether he still waits, which is the last look before a turn, the device is lost."""

    def __init__(self, held: Held | None = None) -> None:
        super().__init__()
        self.executor = held.executor if held else executor(ScriptedDevice(self._run))
        self.ran = False

    def is_active(self) -> bool:
        self.executor.lose(lost)
        return super().is_active()

    def _run(self, turn: Turn) -> None:
        with turn():
            self.ran = True


def test_a_loss_between_the_last_look_and_a_free_turn_gives_no_turn() -> None:
    caller = LosingCaller()
    with pytest.raises(DeviceLostError):
        execute(caller.executor, CALL, {}, caller)
    assert not caller.ran
    assert is_at_rest(caller.executor)


def test_a_loss_between_the_last_look_and_the_queue_lets_nobody_wait(held: Held) -> None:
    caller = LosingCaller(held)
    with pytest.raises(DeviceLostError):
        execute(held.executor, CALL, {}, caller)
    assert waiting(held.executor) == 0


def test_a_turn_that_is_given_back_after_the_loss_goes_to_nobody() -> None:
    turns, waiter = Turns(1), Taker()
    grant = turns.take(Taker())  # type: ignore[arg-type]  # all that Turns asks of a turn
    assert grant is not None
    assert turns.take(waiter) is None  # type: ignore[arg-type]  # likewise
    turns.refuse(lost)
    turns.give_back(grant)
    assert (waiter.woken, waiter.granted) == (1, None)
    turns.give_up(waiter)  # type: ignore[arg-type]  # what a waiter does whose wait is refused
    assert (turns.running, turns.waiting) == (0, 0)


def test_going_down_after_the_loss_changes_nothing_for_those_who_wait(held: Held) -> None:
    call = held.pool.submit(execute, held.executor, CALL, {}, ScriptedCaller())
    until(lambda: waiting(held.executor) == 1, "it waits")
    held.executor.lose(lost)
    held.executor.drain()
    with pytest.raises(DeviceLostError):
        call.result(PATIENCE)
    with pytest.raises(DrainingError):
        execute(held.executor, CALL, {}, ScriptedCaller())


@pytest.mark.parametrize("seed", range(20))
def test_nobody_has_a_turn_after_a_loss_at_any_moment(seed: int) -> None:
    """A loss in the midst of 64 calls of several turns, on 3 lanes."""
    random, gone = Random(seed), threading.Event()
    late: list[str] = []

    def run(turn: Turn) -> None:
        for _ in range(4):
            gone_before = gone.is_set()
            with turn():
                if gone_before:
                    late.append(threading.current_thread().name)

    subject = executor(ScriptedDevice(run, lanes=3), queue_length=64)

    def call() -> str:
        try:
            execute(subject, CALL, {}, ScriptedCaller())
        except DeviceLostError:
            return "LOST"
        return "OK"

    moment = random.randrange(64)
    with ThreadPoolExecutor(32) as pool:
        calls = []
        for number in range(64):
            if number == moment:
                subject.lose(lost)
                gone.set()
            calls.append(pool.submit(call))
        answers = [each.result(PATIENCE) for each in calls]
    assert answers[moment:] == ["LOST"] * (64 - moment)
    assert late == []
    assert is_at_rest(subject)
