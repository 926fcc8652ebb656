"""What an executor lets in, and what it says to the others."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from npucall.errors import DrainingError, QueueFullError, TooLargeError
from npucall.texts import retry_in
from npucall_server.executor import Executor, Limits

from .scripted import (
    PATIENCE,
    ScriptedCaller,
    ScriptedDevice,
    execute,
    executor,
    is_at_rest,
    prepared,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_server.devices.base import Turn
    from npucall_server.executor import Result


class House:
    """A device that keeps its calls until the test lets them go."""

    def __init__(self, queue_length: int, lanes: int, memory_limit: int = 1 << 30) -> None:
        self.let_go = threading.Event()
        self.pool = ThreadPoolExecutor(16)
        self.executor: Executor = executor(
            ScriptedDevice(self._run, lanes), queue_length, memory_limit
        )

    def fill(self, calls: int, elements: int = 2) -> list[Future[Result]]:
        call = prepared(elements)
        expected = self.executor.calls_in_flight + calls
        futures = [
            self.pool.submit(execute, self.executor, call, {}, ScriptedCaller())
            for _ in range(calls)
        ]
        until(lambda: self.executor.calls_in_flight == expected, "the calls are in")
        return futures

    def _run(self, turn: Turn) -> None:
        with turn():
            assert self.let_go.wait(PATIENCE)


@pytest.fixture
def houses() -> Iterator[list[House]]:
    """Whoever moves in here is let go at the end."""
    houses: list[House] = []
    yield houses
    for house in houses:
        house.let_go.set()
        house.pool.shutdown()


@pytest.mark.parametrize(("queue_length", "lanes"), [(0, 1), (1, 1), (3, 2), (0, 4)])
def test_as_many_calls_are_let_in_as_may_wait_and_run_and_not_one_more(
    houses: list[House], queue_length: int, lanes: int
) -> None:
    houses.append(house := House(queue_length, lanes))
    calls = house.fill(queue_length + lanes)
    with pytest.raises(QueueFullError):
        execute(house.executor, prepared(), {}, ScriptedCaller())
    house.let_go.set()
    assert [call.result(PATIENCE).outputs for call in calls] == [[[b"result"]]] * len(calls)
    assert is_at_rest(house.executor)


def test_a_full_queue_names_the_setting_and_says_when_to_come_back(houses: list[House]) -> None:
    houses.append(house := House(queue_length=2, lanes=1))
    house.fill(3)
    with pytest.raises(QueueFullError, match="queue_length = 2") as caught:
        execute(house.executor, prepared(), {}, ScriptedCaller())
    assert caught.value.details == {"limit": "2", "setting": "queue_length"}
    assert caught.value.retry_after is not None
    assert 0.05 <= caught.value.retry_after <= 5.0  # _RETRY_BOUNDS
    said = f"the queue is full (queue_length = 2); {retry_in(caught.value.retry_after)}"
    assert str(caught.value) == said


def test_a_place_is_free_again_after_a_refusal_and_an_answer(houses: list[House]) -> None:
    houses.append(house := House(queue_length=0, lanes=1))
    (call,) = house.fill(1)
    with pytest.raises(QueueFullError):
        execute(house.executor, prepared(), {}, ScriptedCaller())
    house.let_go.set()
    call.result(PATIENCE)
    assert execute(house.executor, prepared(), {}, ScriptedCaller()).outputs == [[b"result"]]


def test_bytes_in_flight_stay_under_the_memory_limit(houses: list[House]) -> None:
    houses.append(house := House(queue_length=8, lanes=2, memory_limit=16 * 250))
    house.fill(2, elements=100)  # 16 bytes an element: 3,200 of 4,000
    with pytest.raises(QueueFullError, match="memory_limit = 4000") as caught:
        execute(house.executor, prepared(51), {}, ScriptedCaller())  # 816 more
    assert caught.value.details == {"limit": "4000", "setting": "memory_limit"}
    assert caught.value.retry_after is not None
    assert house.executor.bytes_in_flight == 3200


def test_what_just_fits_into_the_memory_limit_is_let_in(houses: list[House]) -> None:
    houses.append(house := House(queue_length=8, lanes=2, memory_limit=16 * 250))
    house.fill(2, elements=100)
    house.fill(1, elements=50)
    assert house.executor.bytes_in_flight == 4000


def test_a_call_over_the_memory_limit_is_refused_for_good() -> None:
    subject = executor(ScriptedDevice(), memory_limit=1599)
    with pytest.raises(TooLargeError, match=r"1599 bytes.*found 1600") as caught:
        execute(subject, prepared(100), {}, ScriptedCaller())
    assert caught.value.details == {"limit": "1599", "setting": "memory_limit"}
    assert caught.value.retry_after is None
    assert is_at_rest(subject)


def test_plan_refuses_the_size_that_run_would_refuse() -> None:
    subject = executor(ScriptedDevice(), memory_limit=1599)
    with pytest.raises(TooLargeError):
        subject.plan(prepared(100), subject.turn(ScriptedCaller()))


def test_working_memory_counts_from_admission_to_dismissal() -> None:
    device = ScriptedDevice()
    device.working = 500
    subject, call = executor(device, memory_limit=4000), prepared(100)  # 1,600 bytes
    admission = subject.admit(call, ScriptedCaller())
    assert subject.bytes_in_flight == 2100
    with pytest.raises(QueueFullError, match="memory_limit = 4000"):
        subject.admit(call, ScriptedCaller())
    admission.dismiss()
    assert is_at_rest(subject)


@pytest.mark.parametrize("working", [2400, 2401])
def test_a_call_whose_working_memory_can_never_fit_is_refused_for_good(working: int) -> None:
    device = ScriptedDevice()
    device.working = working
    subject, call = executor(device, memory_limit=4000), prepared(100)  # 1,600 bytes
    if working == 2400:
        subject.plan(call, subject.turn(ScriptedCaller()))
        return
    for ask in (partial(subject.admit, call), partial(subject.plan, call)):
        with pytest.raises(TooLargeError, match=r"working memory.*memory_limit.*4001") as caught:
            ask(ScriptedCaller())
        assert caught.value.details == {"limit": "4000", "setting": "memory_limit"}


def test_a_call_that_computes_too_much_is_refused_for_good() -> None:
    subject = Executor(ScriptedDevice(), Limits(8, 1 << 30, PATIENCE, computation_limit=100))
    subject.plan(prepared(100), subject.turn(ScriptedCaller()))
    call = prepared(101)
    for ask in (partial(subject.admit, call), partial(subject.plan, call)):
        with pytest.raises(TooLargeError, match=r"computation: expected at most 100 .*101") as it:
            ask(ScriptedCaller())
        assert it.value.details == {"limit": "100", "setting": "computation_limit"}
    assert is_at_rest(subject)


def test_plan_tells_what_the_device_needs() -> None:
    subject = executor(ScriptedDevice())
    assert subject.plan(prepared(), subject.turn(ScriptedCaller())) == 512


def test_a_draining_executor_refuses_new_calls_and_finishes_the_others(
    houses: list[House],
) -> None:
    houses.append(house := House(queue_length=2, lanes=1))
    calls = house.fill(2)
    house.executor.drain()
    with pytest.raises(DrainingError) as caught:
        execute(house.executor, prepared(), {}, ScriptedCaller())
    assert caught.value.retry_after == 1.0
    house.let_go.set()
    assert house.executor.wait_idle(PATIENCE)
    assert [call.result(PATIENCE).outputs for call in calls] == [[[b"result"]]] * 2


def test_waiting_for_the_last_call_gives_up_in_time(houses: list[House]) -> None:
    houses.append(house := House(queue_length=0, lanes=1))
    house.fill(1)
    house.executor.drain()
    assert not house.executor.wait_idle(0.01)


def test_an_executor_without_calls_is_idle_at_once() -> None:
    subject = executor(ScriptedDevice())
    subject.drain()
    assert subject.wait_idle(0)


def test_waiting_and_running_are_told_apart(houses: list[House]) -> None:
    houses.append(house := House(queue_length=1, lanes=1))
    first, second = house.fill(2)
    house.let_go.set()
    results = [first.result(PATIENCE), second.result(PATIENCE)]
    assert sorted(result.queue_ns > 0 for result in results) == [False, True]
    assert all(result.phases.run_ns > 0 for result in results)
