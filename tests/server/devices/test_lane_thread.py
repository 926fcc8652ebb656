"""The thread of a lane: what happens in it comes out where somebody waits for it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from npucall.errors import DeviceError, NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.lane_thread import LaneThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 20.0
BROKEN = BrokenDeviceError("broken")


class Lane:
    """Does what the test tells it; ``plan`` stands for any work."""

    def __init__(self) -> None:
        self.broken: NpucallError | None = None
        self.threads: set[threading.Thread] = {threading.current_thread()}
        self.closed = 0
        self.close_error: Exception | None = None

    def plan(self, work: Callable[[Lane], Any]) -> Any:
        self.threads.add(threading.current_thread())
        return work(self)

    def close(self) -> None:
        self.threads.add(threading.current_thread())
        self.closed += 1
        if self.close_error is not None:
            raise self.close_error


class Opened:
    """A lane in its thread, and what was said of it."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.told: list[NpucallError] = []
        self.thread = LaneThread(cast("Any", self._open), self.told.append)

    @property
    def lane(self) -> Lane:
        return self.lanes[0]

    def do(self, work: Callable[[Lane], Any]) -> Any:
        return self.thread.plan(cast("Any", work))

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

    before = threading.active_count()
    with pytest.raises(DeviceError, match="no stream"):
        LaneThread(fail, lambda error: None)
    assert threading.active_count() == before


def test_what_closing_raises_is_raised_where_the_lane_is_closed(opened: Opened) -> None:
    opened.lane.close_error = DeviceError("cannot be freed")
    with pytest.raises(DeviceError, match="cannot be freed"):
        opened.thread.close()


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
    with pytest.raises(BrokenDeviceError):
        thread.plan(cast("Any", breaks))
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


def test_who_waits_for_work_that_is_given_up_hears_so(opened: Opened) -> None:
    started, end = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def hang(_: Lane) -> None:
        started.set()
        end.wait(PATIENCE)

    def wait() -> None:
        with pytest.raises(BrokenDeviceError) as caught:
            opened.do(hang)
        raised.append(caught.value)

    caller = threading.Thread(target=wait)
    caller.start()
    assert started.wait(PATIENCE)
    opened.thread.give_up(BROKEN)
    caller.join(PATIENCE)
    end.set()
    assert raised == [BROKEN]
    assert opened.do(lambda _: 7) == 7


def test_nobody_hears_of_an_idle_lane_that_is_given_up(opened: Opened) -> None:
    opened.thread.give_up(BROKEN)
    assert opened.do(lambda _: 7) == 7
