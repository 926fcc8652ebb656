"""A call waits for its turns in order, and gives them back whatever ends it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from npucall.errors import (
    CancelledError,
    DeadlineError,
    DeviceError,
    QueueFullError,
)

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
    from npucall_server.executor import Executor

CALL = prepared()


class Gate:
    """A device's run that holds its turn until the test opens the gate."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entered: list[str] = []

    def __call__(self, turn: Turn) -> None:
        with turn():
            self.entered.append(threading.current_thread().name)
            assert self.opened.wait(PATIENCE)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.opened.set()


def start(subject: Executor, name: str, caller: ScriptedCaller | None = None) -> threading.Thread:
    def run() -> None:
        execute(subject, CALL, {}, caller or ScriptedCaller())

    thread = threading.Thread(target=run, name=name)
    thread.start()
    return thread


def test_calls_get_their_turns_in_the_order_in_which_they_came(gate: Gate) -> None:
    subject = executor(ScriptedDevice(gate))
    threads = []
    for number in range(6):
        threads.append(start(subject, str(number)))
        until(lambda: len(gate.entered) == 1 and waiting(subject) == len(threads) - 1, "it waits")
    gate.opened.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert gate.entered == ["0", "1", "2", "3", "4", "5"]


def test_a_call_between_two_blocks_stands_behind_those_that_wait_already() -> None:
    order: list[str] = []
    second_waits = threading.Event()

    def two_blocks(turn: Turn) -> None:
        name = threading.current_thread().name
        for block in "ab":
            with turn():
                order.append(name + block)
                assert second_waits.wait(PATIENCE)

    subject = executor(ScriptedDevice(two_blocks))
    first = start(subject, "1")
    until(lambda: bool(order), "the first runs")
    second = start(subject, "2")
    until(lambda: waiting(subject) == 1, "the second waits")
    second_waits.set()
    first.join(PATIENCE)
    second.join(PATIENCE)
    assert order == ["1a", "2a", "1b", "2b"]


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_there_are_as_many_turns_as_lanes_and_never_more(
    pool: ThreadPoolExecutor, lanes: int
) -> None:
    held = 0
    most = 0
    lock = threading.Lock()
    full = threading.Event()

    def run(turn: Turn) -> None:
        nonlocal held, most
        for _ in range(20):
            with turn():
                with lock:
                    held += 1
                    most = max(most, held)
                    if held == lanes:
                        full.set()
                full.wait(PATIENCE)
                with lock:
                    held -= 1

    subject = executor(ScriptedDevice(run, lanes), queue_length=32)
    for call in [pool.submit(execute, subject, CALL, {}, ScriptedCaller()) for _ in range(16)]:
        call.result(PATIENCE)
    assert most == lanes
    assert is_at_rest(subject)


def test_a_call_whose_deadline_ends_while_it_waits_never_runs(gate: Gate) -> None:
    subject = executor(ScriptedDevice(gate))
    holder = start(subject, "holder")
    until(lambda: gate.entered == ["holder"], "it holds the turn")
    with pytest.raises(DeadlineError, match="the deadline of the call ended"):
        execute(subject, CALL, {}, ScriptedCaller(remaining=0.02))
    assert waiting(subject) == 0
    gate.opened.set()
    holder.join(PATIENCE)
    assert gate.entered == ["holder"]
    assert is_at_rest(subject)


def test_a_call_that_is_cancelled_while_it_waits_never_runs(
    gate: Gate, pool: ThreadPoolExecutor
) -> None:
    subject, caller = executor(ScriptedDevice(gate)), ScriptedCaller()
    holder = start(subject, "holder")
    until(lambda: gate.entered == ["holder"], "it holds the turn")
    call = pool.submit(execute, subject, CALL, {}, caller)
    until(lambda: waiting(subject) == 1, "it waits")
    caller.cancel()
    with pytest.raises(CancelledError):
        call.result(PATIENCE)
    gate.opened.set()
    holder.join(PATIENCE)
    assert gate.entered == ["holder"]
    assert is_at_rest(subject)


def test_a_call_without_a_caller_is_not_started() -> None:
    ran: list[int] = []

    def run(turn: Turn) -> None:
        with turn():
            ran.append(1)

    subject, caller = executor(ScriptedDevice(run)), ScriptedCaller()
    caller.cancel()
    with pytest.raises(CancelledError):
        execute(subject, CALL, {}, caller)
    assert not ran
    assert is_at_rest(subject)


def test_a_running_call_is_stopped_between_two_blocks_when_it_is_cancelled() -> None:
    caller, blocks = ScriptedCaller(), []

    def run(turn: Turn) -> None:
        for block in range(3):
            with turn():
                blocks.append(block)
                caller.cancel()

    subject = executor(ScriptedDevice(run))
    with pytest.raises(CancelledError):
        execute(subject, CALL, {}, caller)
    assert blocks == [0]
    assert is_at_rest(subject)


def test_a_running_call_is_stopped_between_two_blocks_when_its_deadline_ends() -> None:
    def run(turn: Turn) -> None:
        while True:
            with turn():
                pass

    subject = executor(ScriptedDevice(run))
    with pytest.raises(DeadlineError, match=r"the deadline of the call ended after 0\.02 s"):
        execute(subject, CALL, {}, ScriptedCaller(remaining=0.02))
    assert is_at_rest(subject)


@pytest.mark.parametrize("remaining", [None, float("inf"), 3600.0])
def test_the_servers_own_limit_ends_a_call_whose_deadline_is_later(remaining: float | None) -> None:
    def run(turn: Turn) -> None:
        while True:
            with turn():
                pass

    subject = executor(ScriptedDevice(run), call_timeout=0.02)
    with pytest.raises(DeadlineError, match="call_timeout") as caught:
        execute(subject, CALL, {}, ScriptedCaller(remaining))
    assert caught.value.details == {"limit": "0.02", "setting": "call_timeout"}
    assert is_at_rest(subject)


@pytest.mark.parametrize("holding", [False, True])
@pytest.mark.parametrize("fault", [DeviceError("broken"), ValueError("bug"), KeyboardInterrupt()])
def test_everything_is_counted_back_whatever_the_device_raises(
    *, holding: bool, fault: BaseException
) -> None:
    def run(turn: Turn) -> None:
        if not holding:
            raise fault
        with turn():
            raise fault

    subject = executor(ScriptedDevice(run))
    with pytest.raises(type(fault)):
        execute(subject, CALL, {}, ScriptedCaller())
    assert is_at_rest(subject)


def test_no_turn_is_lost_when_the_wait_itself_fails(gate: Gate) -> None:
    """A lock cannot wait for infinity: OverflowError."""
    subject = executor(ScriptedDevice(gate), call_timeout=float("inf"))
    holder = start(subject, "holder")
    until(lambda: gate.entered == ["holder"], "it holds the turn")
    with pytest.raises(OverflowError):
        execute(subject, CALL, {}, ScriptedCaller())
    gate.opened.set()
    holder.join(PATIENCE)
    assert is_at_rest(subject)


def test_a_call_that_waits_for_its_first_turn_gives_way_to_another_connection(
    pool: ThreadPoolExecutor, gate: Gate
) -> None:
    """The one that runs goes on."""
    subject = executor(ScriptedDevice(gate), queue_length=3)
    greedy = [pool.submit(execute, subject, CALL, {}, ScriptedCaller()) for _ in range(4)]
    until(lambda: waiting(subject) == 3, "three wait")
    other = ScriptedCaller()
    other.peer = "another"
    asking = pool.submit(execute, subject, CALL, {}, other)
    until(lambda: sum(call.done() for call in greedy) == 1, "one gives way")
    (ended,) = [call for call in greedy if call.done()]
    with pytest.raises(QueueFullError, match="more than half"):
        ended.result()
    gate.opened.set()
    assert asking.result(PATIENCE).outputs == [[b"result"]]
    assert sum(call.exception(PATIENCE) is None for call in greedy) == 3
    assert is_at_rest(subject)


def test_a_device_is_stuck_when_turns_are_taken_and_none_ends(
    pool: ThreadPoolExecutor, gate: Gate
) -> None:
    subject = executor(ScriptedDevice(gate))
    assert not subject.is_stuck(0.0)
    call = pool.submit(execute, subject, CALL, {}, ScriptedCaller())
    until(lambda: subject.is_stuck(0.02), "its turn does not end")
    assert not subject.is_stuck(PATIENCE)
    gate.opened.set()
    call.result(PATIENCE)
    assert not subject.is_stuck(0.0)


def test_who_computes_long_and_pauses_is_not_stuck(pool: ThreadPoolExecutor) -> None:
    stop, looked = threading.Event(), threading.Event()

    def compute(turn: Turn) -> None:
        with turn():
            while not stop.wait(0.002):
                turn.pause()
                looked.set()

    subject = executor(ScriptedDevice(compute))
    call = pool.submit(execute, subject, CALL, {}, ScriptedCaller())
    assert looked.wait(PATIENCE)
    stop.wait(0.3)
    assert not subject.is_stuck(0.25)
    stop.set()
    call.result(PATIENCE)
