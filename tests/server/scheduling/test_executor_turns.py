"""A call waits for its turns in order, and gives them back whatever ends it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.server.fakes import (
    PATIENCE,
    BlockingDevice,
    FakeCaller,
    FakeDevice,
    admitted,
    execute,
    executor,
    is_at_rest,
    prepared,
    until,
    waiting,
)

from npucall.errors import (
    CancelledError,
    DeadlineError,
    DeviceError,
    QueueFullError,
    ReservedError,
)
from npucall_server.devices.base import DeviceTurn
from npucall_server.scheduling import call_turn
from npucall_server.scheduling.gate import Gate, Permit
from npucall_server.telemetry.log import Record

CALL = prepared()


@pytest.fixture
def device() -> Iterator[BlockingDevice]:
    device = BlockingDevice()
    yield device
    device.let_all_go()


class Holding:
    """An executor and a call that holds its one turn."""

    def __init__(
        self, pool: ThreadPoolExecutor, device: BlockingDevice, call_timeout: float = PATIENCE
    ) -> None:
        self.executor, self._pool = executor(device, call_timeout=call_timeout), pool
        self.holder = self.call()
        until(lambda: device.running == 1, "it holds the turn")
        self.device = device

    def call(self, caller: FakeCaller | None = None) -> Future[Any]:
        return self._pool.submit(execute, self.executor, CALL, None, caller)

    def ends_well(self) -> None:
        """The call that holds the turn, which nobody else has had."""
        self.device.let_all_go()
        self.holder.result(PATIENCE)
        assert len(self.device.entered) == 1
        assert is_at_rest(self.executor)


@pytest.fixture
def holding(pool: ThreadPoolExecutor, device: BlockingDevice) -> Holding:
    return Holding(pool, device)


def test_a_call_between_two_blocks_stands_behind_those_that_wait_already(
    pool: ThreadPoolExecutor,
) -> None:
    order: list[str] = []
    second_waits = threading.Event()

    def two_blocks(turn: DeviceTurn) -> None:
        for block in "ab":
            with turn():
                order.append(f"{turn.owner} {block}")
                assert second_waits.wait(PATIENCE)

    subject = executor(FakeDevice(two_blocks))
    calls = [pool.submit(execute, subject, CALL, None, FakeCaller(peer="first"))]
    until(lambda: bool(order), "the first runs")
    calls.append(pool.submit(execute, subject, CALL, None, FakeCaller(peer="second")))
    until(lambda: waiting(subject) == 1, "the second waits")
    second_waits.set()
    for call in calls:
        call.result(PATIENCE)
    assert order == ["first a", "second a", "first b", "second b"]


def test_a_call_that_waits_for_its_first_turn_gives_way_to_another_connection(
    pool: ThreadPoolExecutor, device: BlockingDevice
) -> None:
    """The one that runs goes on."""
    subject = executor(device, queue_length=3)
    greedy = [pool.submit(execute, subject, CALL) for _ in range(4)]
    until(lambda: waiting(subject) == 3, "three wait")
    asking = pool.submit(execute, subject, CALL, None, FakeCaller(peer="another"))
    until(lambda: sum(call.done() for call in greedy) == 1, "one gives way")
    (ended,) = [call for call in greedy if call.done()]
    with pytest.raises(QueueFullError, match="more than half"):
        ended.result()
    device.let_all_go()
    assert asking.result(PATIENCE).outputs == [[b"result"]]
    assert sum(call.exception(PATIENCE) is None for call in greedy) == 3
    assert is_at_rest(subject)


def test_a_call_that_runs_at_once_has_a_turn_from_its_admission_and_no_place() -> None:
    """If it never runs, the turn goes back; without a free one it is like every other call."""

    def runs(turn: DeviceTurn) -> None:
        with turn():
            raise AssertionError("it was cancelled")

    device = FakeDevice(runs)
    device.runs_in_calling_thread = True
    subject = executor(device, queue_length=0)
    callers = FakeCaller(), FakeCaller()
    first, second = (admitted(subject, CALL, each, at_once=True) for each in callers)
    assert (first.turn is None, first.place is None) == (False, True)
    assert (second.turn is None, second.place is None) == (True, False)
    with pytest.raises(QueueFullError):
        admitted(subject, CALL, FakeCaller(), at_once=True)
    assert (subject.turns.running, subject.calls_in_flight) == (1, 2)
    second.read()
    callers[0].cancel()  # before it runs
    with pytest.raises(CancelledError):
        subject.run([], callers[0], first, Record("Execute", "1", "peer"))
    first.read()
    assert is_at_rest(subject)


def test_a_call_whose_deadline_ends_while_it_waits_never_runs(holding: Holding) -> None:
    with pytest.raises(DeadlineError, match="the deadline of the call ended"):
        execute(holding.executor, CALL, caller=FakeCaller(remaining=0.02))
    assert waiting(holding.executor) == 0
    holding.ends_well()


def test_a_call_that_is_cancelled_while_it_waits_never_runs(holding: Holding) -> None:
    caller = FakeCaller()
    call = holding.call(caller)
    until(lambda: waiting(holding.executor) == 1, "it waits")
    caller.cancel()
    with pytest.raises(CancelledError):
        call.result(PATIENCE)
    holding.ends_well()


def test_a_call_does_not_wait_if_the_device_was_reserved_since_it_was_let_in(
    holding: Holding,
) -> None:
    """Nobody could end it then: it did not wait yet."""
    caller = FakeCaller()
    ticket = admitted(holding.executor, CALL, caller)
    ticket.permit = Permit(cast("Gate", SimpleNamespace(inside={}, waiting=0)), "")
    ticket.permit.refusal = ReservedError("reserved")
    with pytest.raises(QueueFullError):
        holding.executor.run([], caller, ticket, Record("Execute", "1", caller.peer))
    ticket.read()
    assert waiting(holding.executor) == 0
    holding.ends_well()


def test_no_turn_is_lost_when_the_wait_itself_fails(
    pool: ThreadPoolExecutor, device: BlockingDevice
) -> None:
    """A lock cannot wait for infinity: OverflowError."""
    holding = Holding(pool, device, call_timeout=float("inf"))
    with pytest.raises(OverflowError):
        execute(holding.executor, CALL)
    holding.ends_well()


def test_a_call_without_a_caller_is_not_started(device: BlockingDevice) -> None:
    subject, caller = executor(device), FakeCaller()
    caller.cancel()
    with pytest.raises(CancelledError):
        execute(subject, CALL, caller=caller)
    assert not device.entered
    assert is_at_rest(subject)


def test_a_running_call_is_stopped_between_two_blocks_when_it_is_cancelled() -> None:
    caller, blocks = FakeCaller(), []

    def run(turn: DeviceTurn) -> None:
        for block in range(3):
            with turn():
                blocks.append(block)
                caller.cancel()

    subject = executor(FakeDevice(run))
    with pytest.raises(CancelledError):
        execute(subject, CALL, caller=caller)
    assert blocks == [0]
    assert is_at_rest(subject)


def blocks_without_end(turn: DeviceTurn) -> None:
    while True:
        with turn():
            pass


def pauses_without_end(turn: DeviceTurn) -> None:
    with turn():
        while True:
            turn.pause()


@pytest.fixture
def pauses_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_turn, "_SECONDS_BETWEEN_PAUSES", 0.0)


@pytest.mark.parametrize("run", [blocks_without_end, pauses_without_end])
@pytest.mark.usefixtures("pauses_all_the_time")
def test_a_deadline_or_the_servers_own_limit_ends_a_call_between_blocks_and_in_pauses(
    run: Callable[[DeviceTurn], None],
) -> None:
    subject = executor(FakeDevice(run))
    with pytest.raises(DeadlineError, match=r"the deadline of the call ended after 0\.02 s"):
        execute(subject, CALL, caller=FakeCaller(remaining=0.02))
    assert is_at_rest(subject)
    subject = executor(FakeDevice(run), call_timeout=0.02)
    for remaining in None, float("inf"), 3600.0:
        with pytest.raises(DeadlineError, match="call_timeout") as caught:
            execute(subject, CALL, caller=FakeCaller(remaining))
        assert caught.value.details == {"limit": "0.02", "setting": "call_timeout"}
    assert is_at_rest(subject)


@pytest.mark.parametrize("holding_a_turn", [False, True])
@pytest.mark.parametrize("fault", [DeviceError("broken"), ValueError("bug"), KeyboardInterrupt()])
def test_everything_is_counted_back_whatever_the_device_raises(
    fault: BaseException, holding_a_turn: bool
) -> None:
    def run(turn: DeviceTurn) -> None:
        if not holding_a_turn:
            raise fault
        with turn():
            raise fault

    subject = executor(FakeDevice(run))
    with pytest.raises(type(fault)):
        execute(subject, CALL)
    assert is_at_rest(subject)
