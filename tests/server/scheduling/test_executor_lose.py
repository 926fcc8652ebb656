"""A device that is lost: all are told so, and nobody gets a turn any more; ends at random."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from tests.server.fakes import (
    PATIENCE,
    BlockingDevice,
    FakeCaller,
    FakeDevice,
    FakeTurn,
    execute,
    executor,
    is_at_rest,
    prepared,
    until,
    waiting,
)

from npucall.errors import DeviceError, DeviceLostError, DrainingError, NpucallError
from npucall_server.devices.base import DeviceTurn
from npucall_server.scheduling.schedule import Schedule

from .test_executor_turns import Holding, device, holding

__all__ = ["device", "holding"]

CALL = prepared()


def lost() -> DeviceLostError:
    return DeviceLostError("device: lost", retry_after=5.0)


def test_all_who_wait_and_come_are_told_and_the_call_that_runs_has_its_answer(
    pool: ThreadPoolExecutor, holding: Holding
) -> None:
    """Even if the server goes down behind the loss. Those who come do not count."""

    def plan() -> Future[Any]:
        turn = holding.executor.turn(FakeCaller())
        return pool.submit(holding.executor.plan, CALL, turn)

    calls = [*(holding.call() for _ in range(5)), plan()]
    until(lambda: waiting(holding.executor) == 6, "they wait")
    holding.executor.lose(lost)
    for call in [*calls, holding.call(), plan()]:
        error = call.exception(PATIENCE)
        assert isinstance(error, DeviceLostError)
        assert error.retry_after == 5.0
    assert holding.executor.calls_in_flight == 1
    assert len(holding.device.entered) == 1
    assert not holding.holder.done()
    holding.device.let_all_go()
    assert holding.holder.result(PATIENCE).outputs == [[b"result"]]
    until(lambda: is_at_rest(holding.executor), "nothing is left")


def test_going_down_after_the_loss_changes_nothing_for_those_who_wait(holding: Holding) -> None:
    call = holding.call()
    until(lambda: waiting(holding.executor) == 1, "it waits")
    holding.executor.lose(lost)
    holding.executor.drain()
    assert isinstance(call.exception(PATIENCE), DeviceLostError)
    assert isinstance(holding.call().exception(PATIENCE), DrainingError)


def test_calls_that_come_are_told_so_though_the_queue_is_full() -> None:
    """A full queue is for now, and another retry delay."""

    def run(turn: DeviceTurn) -> None:
        with turn():
            subject.lose(lost)
            with pytest.raises(DeviceLostError):
                execute(subject, CALL)

    subject = executor(FakeDevice(run), queue_length=0)
    execute(subject, CALL)
    assert is_at_rest(subject)


@pytest.mark.parametrize("asks", [False, True])
def test_a_running_call_that_asks_whether_it_should_go_on_or_for_a_further_turn_is_told(
    asks: bool,
) -> None:
    blocks: list[str] = []

    def run(turn: DeviceTurn) -> None:
        for block in "ab":
            with turn():
                blocks.append(block)
                subject.lose(lost)
                if asks:
                    turn.check()

    subject = executor(FakeDevice(run))
    with pytest.raises(DeviceLostError):
        execute(subject, CALL)
    assert blocks == ["a"]
    assert is_at_rest(subject)


class LosingCaller(FakeCaller):
    """Asked whether he still waits, which is the last look before a turn, the device is lost."""

    lose: Any

    def is_active(self) -> bool:
        self.lose(lost)
        return super().is_active()


def test_a_loss_between_the_last_look_and_a_free_turn_gives_no_turn() -> None:
    device, caller = BlockingDevice(), LosingCaller()
    subject = executor(device)
    caller.lose = subject.lose
    with pytest.raises(DeviceLostError):
        execute(subject, CALL, caller=caller)
    assert not device.entered
    assert is_at_rest(subject)


def test_a_loss_between_the_last_look_and_the_queue_lets_nobody_wait(holding: Holding) -> None:
    caller = LosingCaller()
    caller.lose = holding.executor.lose
    with pytest.raises(DeviceLostError):
        execute(holding.executor, CALL, caller=caller)
    assert waiting(holding.executor) == 0


def test_a_turn_that_is_given_back_after_the_loss_goes_to_nobody() -> None:
    turns, waiter = Schedule(1), FakeTurn()
    grant = turns.take(FakeTurn())  # type: ignore[arg-type]  # all that Schedule asks of a turn
    assert grant is not None
    assert turns.take(waiter) is None  # type: ignore[arg-type]  # likewise
    turns.refuse(lost)
    turns.give_back(grant)
    assert (waiter.woken, waiter.granted) == (1, None)
    turns.give_up(waiter)  # type: ignore[arg-type]  # what a waiter does whose wait is refused
    assert (turns.running, turns.waiting) == (0, 0)


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 60), marks=pytest.mark.long)])
def test_nobody_has_a_turn_after_a_loss_at_any_moment(seeds: range) -> None:
    """A loss in the midst of 64 calls of several turns, on 3 lanes."""
    for seed in seeds:
        moment, gone = Random(seed).randrange(64), threading.Event()
        late: list[bool] = []

        def run(turn: DeviceTurn) -> None:
            for _ in range(4):
                gone_before = gone.is_set()  # noqa: B023  # it ends with this seed
                with turn():
                    late.append(gone_before)  # noqa: B023

        subject = executor(FakeDevice(run, lanes=3), queue_length=64)
        with ThreadPoolExecutor(32) as pool:
            calls = []
            for number in range(64):
                if number == moment:
                    subject.lose(lost)
                    gone.set()
                calls.append(pool.submit(execute, subject, CALL))
            errors = [call.exception(PATIENCE) for call in calls]
        assert {type(error) for error in errors[moment:]} == {DeviceLostError}
        assert {type(error) for error in errors} <= {DeviceLostError, type(None)}
        assert not any(late)
        assert is_at_rest(subject)


@pytest.mark.parametrize(
    ("seeds", "calls"),
    [(range(2), 500), pytest.param(range(100, 140), 2000, marks=pytest.mark.long)],
)
def test_nothing_is_lost_when_calls_fail_end_and_are_cancelled_at_any_moment(
    pool: ThreadPoolExecutor, seeds: range, calls: int
) -> None:
    """Deadlines and cancellations fall before, into and behind the waits, on 3 lanes."""
    for seed in seeds:
        stress(pool, seed, calls)


def stress(pool: ThreadPoolExecutor, seed: int, calls: int) -> None:
    random, lock, held = Random(seed), threading.Lock(), 0
    cancels: list[FakeCaller] = []

    def run(turn: DeviceTurn) -> None:
        nonlocal held
        for _ in range(random.randrange(4)):
            with turn():
                with lock:
                    held += 1
                    assert held <= 3
                fault = random.randrange(8)
                if random.random() < 0.3 and cancels:
                    random.choice(cancels[-8:]).cancel()
                threading.Event().wait(0.0002)
                with lock:
                    held -= 1
                if fault == 0:
                    raise DeviceError("broken")
                if fault == 1:
                    raise MemoryError

    subject = executor(FakeDevice(run, lanes=3), queue_length=26)

    def call() -> str:
        caller = FakeCaller(random.choice([None, 0.0, 0.0005, 0.002, 0.01]))
        cancels.append(caller)
        try:
            execute(subject, CALL, caller=caller)
        except NpucallError as error:
            return error.reason
        except MemoryError:
            return "MEMORY"
        return "OK"

    reasons = {future.result(PATIENCE) for future in [pool.submit(call) for _ in range(calls)]}
    assert is_at_rest(subject)
    assert reasons >= {"OK", "DEADLINE", "DEVICE_ERROR"}
    assert reasons <= {
        "OK", "CANCELLED", "DEADLINE", "DEVICE_ERROR", "MEMORY", "QUEUE_FULL"
    }  # fmt: skip
