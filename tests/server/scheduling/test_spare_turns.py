"""A call takes further turns while they are free; in pauses it lets others have its own."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from tests.server.fakes import (
    PATIENCE,
    FakeCaller,
    FakeClock,
    FakeDevice,
    execute,
    executor,
    is_at_rest,
    prepared,
    until,
    waiting,
)

from npucall.compute import evaluate
from npucall.errors import CancelledError, DeviceLostError, DrainingError, NpucallError
from npucall.products import DEFAULT_SOC
from npucall_server.devices.base import DeviceTurn
from npucall_server.devices.cpu import CpuDevice
from npucall_server.scheduling import call_turn
from npucall_server.scheduling.executor import Executor, Limits

from .test_executor_turns import pauses_all_the_time, pauses_without_end

__all__ = ["pauses_all_the_time"]

CALL = prepared()
LARGE = prepared(1_000_000)  # 4 blocks where threads share


@pytest.mark.parametrize("holds", [False, True])
def test_a_call_takes_every_turn_that_is_free_until_it_leaves_it(holds: bool) -> None:
    taken: list[int] = []

    def run(turn: DeviceTurn) -> None:
        with turn() if holds else nullcontext():
            for _ in range(2):
                spare = [each for _ in range(4) if (each := turn.spare()) is not None]
                taken.append(len(spare))
                for each in spare:
                    with each:
                        pass

    subject = executor(FakeDevice(run, lanes=3))
    execute(subject, CALL)
    assert taken == ([2, 2] if holds else [3, 3])
    assert is_at_rest(subject)


@pytest.mark.parametrize("lost", [False, True])
def test_a_turn_that_somebody_waits_for_or_of_a_lost_device_is_not_to_spare(lost: bool) -> None:
    begun, ask = threading.Event(), threading.Event()
    spare: list[object] = []

    def run(turn: DeviceTurn) -> None:
        with turn():
            if begun.is_set():
                return
            begun.set()
            assert ask.wait(PATIENCE)
            spare.append(turn.spare())

    subject = executor(FakeDevice(run, lanes=2 if lost else 1))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(execute, subject, CALL)
        assert begun.wait(PATIENCE)
        if lost:
            subject.lose(lambda: DrainingError("lost"))
        else:
            pool.submit(execute, subject, CALL)
            until(lambda: waiting(subject) == 1, "the second waits")
        ask.set()
        first.result(PATIENCE)
    assert spare == [None]
    assert is_at_rest(subject)


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    cpu = CpuDevice(DEFAULT_SOC, "documented", lanes=3)
    yield cpu
    cpu.close()


def storages() -> dict[str, bytes]:
    random = np.random.default_rng(0)
    return {name: random.random(1_000_000, np.float32).tobytes() for name in LARGE.inputs}


def test_large_calls_that_help_each_other_give_what_one_core_gives(device: CpuDevice) -> None:
    sent = storages()
    alone = evaluate.run(LARGE, sent)
    subject = Executor(device, Limits(8, 1 << 30, PATIENCE))
    assert execute(subject, LARGE, sent).outputs == [alone]
    with ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(execute, subject, LARGE, sent) for _ in range(8)]:
            assert call.result(PATIENCE).outputs == [alone]
    assert is_at_rest(subject)


@pytest.mark.usefixtures("pauses_all_the_time")
def test_who_waits_has_the_turn_during_a_pause_and_gives_it_back(pool: ThreadPoolExecutor) -> None:
    small_ran, holding = threading.Event(), threading.Event()

    def run(turn: DeviceTurn) -> None:
        with turn():
            if turn.owner == "small":
                small_ran.set()
                return
            holding.set()
            while not small_ran.is_set():
                turn.pause()

    subject = executor(FakeDevice(run))
    call = pool.submit(execute, subject, CALL)
    assert holding.wait(PATIENCE)
    execute(subject, CALL, caller=FakeCaller(peer="small"))
    call.result(PATIENCE)
    assert is_at_rest(subject)


@pytest.mark.parametrize("how", [CancelledError, DeviceLostError])
@pytest.mark.usefixtures("pauses_all_the_time")
def test_a_cancel_or_a_lost_device_ends_a_call_in_a_pause(
    pool: ThreadPoolExecutor, how: type[NpucallError]
) -> None:
    subject, caller = executor(FakeDevice(pauses_without_end)), FakeCaller()
    call = pool.submit(execute, subject, CALL, None, caller)
    until(lambda: bool(subject.turns.running), "it holds the turn")
    if how is CancelledError:
        caller.cancel()
    else:
        subject.lose(lambda: DeviceLostError("lost"))
    with pytest.raises(how):
        call.result(PATIENCE)
    assert is_at_rest(subject)


@pytest.mark.usefixtures("pauses_all_the_time")
def test_a_call_that_ends_while_it_waits_to_go_on_gives_nothing_back_twice(
    pool: ThreadPoolExecutor,
) -> None:
    """Its turn is another call's by then, which has to keep it."""
    opened, taken = threading.Event(), threading.Event()

    def run(turn: DeviceTurn) -> None:
        if turn.owner != "keeper":
            pauses_without_end(turn)
        with turn():
            taken.set()
            assert opened.wait(PATIENCE)

    subject, caller = executor(FakeDevice(run)), FakeCaller()
    call = pool.submit(execute, subject, CALL, None, caller)
    until(lambda: bool(subject.turns.running), "it holds the turn")
    kept = pool.submit(execute, subject, CALL, None, FakeCaller(peer="keeper"))
    assert taken.wait(PATIENCE)
    until(lambda: waiting(subject) == 1, "the first waits to go on")
    caller.cancel()
    with pytest.raises(CancelledError):
        call.result(PATIENCE)
    assert subject.turns.running
    opened.set()
    kept.result(PATIENCE)
    assert is_at_rest(subject)


def test_between_two_pauses_a_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_turn, "_SECONDS_BETWEEN_PAUSES", 1e9)
    caller = FakeCaller()

    def run(turn: DeviceTurn) -> None:
        with turn():
            turn.pause()
            caller.cancel()
            turn.pause()

    assert execute(executor(FakeDevice(run)), CALL, caller=caller).outputs == [[b"result"]]


@pytest.mark.usefixtures("pauses_all_the_time")
def test_a_device_is_stuck_when_turns_are_taken_and_none_ends_or_pauses(
    pool: ThreadPoolExecutor,
) -> None:
    pause, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def run(turn: DeviceTurn) -> None:
        with turn():
            go_on.release()
            assert pause.acquire(timeout=PATIENCE)
            turn.pause()
            go_on.release()
            assert pause.acquire(timeout=PATIENCE)

    clock = FakeClock()
    subject = executor(FakeDevice(run), clock=clock.monotonic)
    assert not subject.is_stuck(0.0)
    call = pool.submit(execute, subject, CALL)
    for _ in range(2):
        assert go_on.acquire(timeout=PATIENCE)
        assert not subject.is_stuck(5.0)
        clock.advance(6.0)
        assert subject.is_stuck(5.0)
        assert not subject.is_stuck(7.0)
        pause.release()
    call.result(PATIENCE)
    assert not subject.is_stuck(0.0)
