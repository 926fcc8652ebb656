"""The thread of a lane: what happens in it comes out where somebody waits for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from npucall.errors import DeviceError, NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.lane_thread import LaneThread
from npucall_server.devices.native_threads import EndingThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 20.0
BROKEN = BrokenDeviceError("broken")


class Lane:
    """Does what the test tells it."""

    def __init__(self) -> None:
        self.broken: NpucallError | None = None
        self.spent = False
        self.threads: set[threading.Thread] = {threading.current_thread()}
        self.closed = 0
        self.close_error: Exception | None = None
        self.when_closed: Callable[[], object] = lambda: None

    def close(self) -> None:
        self.threads.add(threading.current_thread())
        self.closed += 1
        self.when_closed()
        if self.close_error is not None:
            raise self.close_error


class Opened:
    """A lane in its thread, and what was said of it."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.told: list[NpucallError] = []
        self.thread = LaneThread(cast("Any", self._open), self.told.append)
        self.thread.open()

    @property
    def lane(self) -> Lane:
        return self.lanes[0]

    def do(self, work: Callable[[Lane], Any]) -> Any:
        def at_work(lane: Lane) -> Any:
            lane.threads.add(threading.current_thread())
            return work(lane)

        return self.thread.do(cast("Any", at_work))

    def _open(self) -> Lane:
        self.lanes.append(Lane())
        return self.lanes[0]


@pytest.fixture
def opened() -> Iterator[Opened]:
    opened = Opened()
    yield opened
    if not opened.lane.closed:
        opened.thread.close()


def breaks(lane: Lane) -> None:
    lane.broken = BROKEN
    raise BROKEN


def test_the_lane_is_opened_used_and_closed_in_one_thread(opened: Opened) -> None:
    assert [opened.do(lambda _, n=n: n) for n in range(3)] == [0, 1, 2]
    opened.thread.close()
    assert len(opened.lane.threads) == 1
    assert threading.current_thread() not in opened.lane.threads
    assert opened.lane.closed == 1


def test_what_opening_raises_is_raised_where_the_lane_is_opened() -> None:
    def fail() -> Any:
        raise DeviceError("no stream")

    thread = LaneThread(fail, lambda error: None)
    with pytest.raises(DeviceError, match="no stream"):
        thread.open()
    assert has_ended(thread)


def test_what_closing_raises_is_raised_where_the_lane_is_closed(opened: Opened) -> None:
    opened.lane.close_error = DeviceError("cannot be freed")
    with pytest.raises(DeviceError, match="cannot be freed"):
        opened.thread.close()
    assert has_ended(opened.thread)


@pytest.mark.parametrize("error", [DeviceError("one"), ValueError("two"), SystemExit(3)])
def test_what_work_raises_is_raised_where_it_was_asked_for(
    opened: Opened, error: BaseException
) -> None:
    def fail(_: Lane) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        opened.do(fail)
    assert caught.value is error
    assert opened.do(lambda _: 7) == 7
    assert opened.told == []


def test_a_lane_that_breaks_is_told_once(opened: Opened) -> None:
    for _ in range(3):
        with pytest.raises(BrokenDeviceError):
            opened.do(breaks)
    assert opened.told == [BROKEN]


def test_a_lane_that_breaks_behind_another_error_is_told_too(opened: Opened) -> None:
    def fail(lane: Lane) -> None:
        lane.broken = BROKEN
        raise DeviceError("first")

    with pytest.raises(DeviceError, match="first"):
        opened.do(fail)
    assert opened.told == [BROKEN]


def test_a_lane_that_breaks_is_told_before_its_caller_hears_of_it() -> None:
    order: list[str] = []
    lane, is_raised = Lane(), threading.Event()

    def told(_: NpucallError) -> None:
        is_raised.wait(0.2)  # time for an answer that comes too soon
        order.append("told")

    thread = LaneThread(lambda: cast("Any", lane), told)
    thread.open()
    with pytest.raises(BrokenDeviceError):
        thread.do(cast("Any", breaks))
    order.append("raised")
    is_raised.set()
    thread.close()
    assert order == ["told", "raised"]


def test_work_of_several_callers_is_done_one_by_one(opened: Opened) -> None:
    at_work: list[int] = []
    most: list[int] = []

    def work(_: Lane) -> None:
        at_work.append(1)
        most.append(len(at_work))
        at_work.pop()

    callers = [threading.Thread(target=opened.do, args=(work,)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE)
    assert most == [1] * 8


def test_it_is_busy_only_while_it_works(opened: Opened) -> None:
    assert opened.thread.busy_since is None
    assert opened.do(lambda _: opened.thread.busy_since) is not None
    assert opened.thread.busy_since is None


def test_it_is_busy_while_it_opens_and_closes() -> None:
    seen: list[float | None] = []
    lane = Lane()
    lane.when_closed = lambda: seen.append(thread.busy_since)

    def open_lane() -> Any:
        seen.append(thread.busy_since)
        return lane

    thread = LaneThread(open_lane, lambda error: None)
    thread.open()
    thread.close()
    assert None not in seen
    assert len(seen) == 2
    assert thread.busy_since is None


def test_it_says_when_its_lane_is_spent(opened: Opened) -> None:
    def spend(lane: Lane) -> None:
        lane.spent = True

    assert not opened.thread.spent
    opened.do(spend)
    assert opened.thread.spent


class Hanging:
    """A thread whose work does not end until it is let go; what its caller hears."""

    def __init__(self, thread: LaneThread[Any]) -> None:
        self._started, self.end = threading.Event(), threading.Event()
        self.raised: list[BaseException] = []
        self._caller = threading.Thread(target=self._wait, args=(thread,))
        self._caller.start()
        assert self._started.wait(PATIENCE)

    def hears(self) -> list[BaseException]:
        self._caller.join(PATIENCE)
        return self.raised

    def _hang(self, _: object) -> None:
        self._started.set()
        self.end.wait(PATIENCE)

    def _wait(self, thread: LaneThread[Any]) -> None:
        with pytest.raises(BrokenDeviceError) as caught:
            thread.do(self._hang)
        self.raised.append(caught.value)


def test_who_waits_for_work_that_is_given_up_hears_so(opened: Opened) -> None:
    hanging = Hanging(opened.thread)
    opened.thread.give_up(BROKEN)
    assert hanging.hears() == [BROKEN]
    leave(opened, hanging)


def test_a_thread_that_is_given_up_does_nothing_more(opened: Opened) -> None:
    hanging = Hanging(opened.thread)
    opened.thread.give_up(BROKEN)
    done: list[int] = []
    with pytest.raises(BrokenDeviceError):
        opened.do(lambda _: done.append(1))
    leave(opened, hanging)
    assert done == []


def test_an_opening_that_is_given_up_is_told() -> None:
    end = threading.Event()
    thread = LaneThread(lambda: cast("Any", end.wait(PATIENCE)), lambda error: None)
    thread.give_up(BROKEN)
    with pytest.raises(BrokenDeviceError):
        thread.open()
    end.set()


def leave(opened: Opened, hanging: Hanging) -> None:
    """Closing tells that the thread was given up; once what hung has ended the thread does too."""
    with pytest.raises(BrokenDeviceError):
        opened.thread.close()
    hanging.end.set()
    assert has_ended(opened.thread)
    opened.lane.closed += 1  # nobody closes it


def has_ended(thread: LaneThread[Any]) -> bool:
    """Whether the system's thread does so, soon."""
    assert thread.native is not None
    ending = EndingThreads()
    ending.add(thread.native)
    return ending.wait(PATIENCE) == 0
