"""Lanes, the threads that they are in, and new ones in place of those that are spent."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from tests.server.fakes import until

from npucall.errors import DeviceError, NpucallError, OutOfMemoryError
from npucall_server.devices import native_threads
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.lane_pool import Lanes
from npucall_server.devices.lane_thread import LaneThread
from npucall_server.devices.native_threads import EndingThreads, NativeThread
from npucall_server.devices.renewed import Renewed

PATIENCE = 20.0
LONG = 1000.0
BROKEN = BrokenDeviceError("broken")


class FakeLane:
    """Does what the test tells it, and knows its thread."""

    def __init__(self) -> None:
        self.broken: NpucallError | None = None
        self.spent = False
        self.threads = {threading.current_thread()}
        self.emptied = self.closed = 0
        self.close_error: Exception | None = None
        self.when_closed: Callable[[], object] = lambda: None

    def empty(self) -> None:
        self.emptied += 1

    def close(self) -> None:
        self.threads.add(threading.current_thread())
        self.closed += 1
        self.when_closed()
        if self.close_error is not None:
            raise self.close_error


class Opened:
    """What opens lanes, of which one may fail to open, and what was said of them."""

    subject: Any

    def __init__(self, failing: int | None = None) -> None:
        self.made: list[FakeLane] = []
        self.told: list[NpucallError] = []
        self.failing = failing

    def open(self) -> Any:
        if len(self.made) == self.failing:
            self.failing = None
            raise DeviceError("no stream")
        self.made.append(FakeLane())
        return self.made[-1]

    def do(self, work: Callable[[FakeLane], Any]) -> Any:
        return self.subject.do(work)

    def use(self) -> FakeLane:
        return cast("FakeLane", self.do(lambda lane: lane))


def breaks(lane: FakeLane) -> None:
    lane.broken = BROKEN
    raise BROKEN


def spend(lane: FakeLane) -> None:
    lane.spent = True


# --- The thread of a lane: what happens in it comes out where somebody waits for it ---------------


@pytest.fixture
def opened() -> Iterator[Opened]:
    opened = Opened()
    opened.subject = LaneThread(opened.open, opened.told.append)
    opened.subject.open()
    yield opened
    if not opened.made[0].closed:
        opened.subject.close()


def has_ended(thread: LaneThread[Any]) -> bool:
    """Whether the system's thread does so, soon."""
    assert thread.native is not None
    ending = EndingThreads()
    ending.add(thread.native)
    return ending.wait(PATIENCE) == 0


def test_the_lane_is_opened_used_and_closed_in_one_thread(opened: Opened) -> None:
    (lane,) = opened.made
    for _ in range(3):
        opened.do(lambda lane: lane.threads.add(threading.current_thread()))
    assert [opened.do(lambda _, n=n: n) for n in range(3)] == [0, 1, 2]
    opened.subject.close()
    assert len(lane.threads) == 1
    assert threading.current_thread() not in lane.threads
    assert lane.closed == 1


def test_what_opening_or_closing_raises_is_raised_where_that_is_asked_for(opened: Opened) -> None:
    thread = LaneThread(Opened(failing=0).open, lambda error: None)
    with pytest.raises(DeviceError, match="no stream"):
        thread.open()
    assert has_ended(thread)
    opened.made[0].close_error = DeviceError("cannot be freed")
    with pytest.raises(DeviceError, match="cannot be freed"):
        opened.subject.close()
    assert has_ended(opened.subject)


@pytest.mark.parametrize("error", [DeviceError("one"), ValueError("two"), SystemExit(3)])
def test_what_work_raises_is_raised_where_it_was_asked_for(
    opened: Opened, error: BaseException
) -> None:
    def fail(_: FakeLane) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        opened.do(fail)
    assert caught.value is error
    assert opened.do(lambda _: 7) == 7
    assert opened.told == []


def test_it_is_told_behind_another_error_too_and_before_the_caller_hears_of_it() -> None:
    answered: list[bool] = []

    def told(_: NpucallError) -> None:
        (work,) = thread._waited_for
        answered.append(not work._done.empty())

    def fail(lane: FakeLane) -> None:
        until(lambda: thread._waited_for)
        lane.broken = BROKEN
        raise DeviceError("first")

    thread: LaneThread[Any] = LaneThread(Opened().open, told)
    thread.open()
    with pytest.raises(DeviceError, match="first"):
        thread.do(fail)
    thread.close()
    assert answered == [False]


def test_work_of_several_callers_is_done_one_by_one(opened: Opened) -> None:
    at_work: list[int] = []
    most: list[int] = []

    def work(_: FakeLane) -> None:
        at_work.append(1)
        most.append(len(at_work))
        at_work.pop()

    callers = [threading.Thread(target=opened.do, args=(work,)) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(PATIENCE)
    assert most == [1] * 8


def test_it_is_busy_while_it_opens_works_and_closes() -> None:
    seen: list[float | None] = []
    lane: Any = FakeLane()
    lane.when_closed = lambda: seen.append(thread.busy_since)
    thread = LaneThread(lambda: (seen.append(thread.busy_since), lane)[1], lambda error: None)
    thread.open()
    assert thread.busy_since is None
    thread.do(lambda _: seen.append(thread.busy_since))
    assert thread.busy_since is None
    thread.close()
    assert None not in seen
    assert len(seen) == 3
    assert thread.busy_since is None


def test_who_waits_for_a_thread_that_is_given_up_hears_so_and_it_does_nothing_more(
    opened: Opened,
) -> None:
    started, end = threading.Event(), threading.Event()
    heard: list[BaseException] = []
    done: list[int] = []

    def hang(_: FakeLane) -> None:
        started.set()
        end.wait(PATIENCE)

    def wait() -> None:
        with pytest.raises(BrokenDeviceError) as caught:
            opened.do(hang)
        heard.append(caught.value)

    caller = threading.Thread(target=wait)
    caller.start()
    assert started.wait(PATIENCE)
    opened.subject.give_up(BROKEN)
    caller.join(PATIENCE)
    assert heard == [BROKEN]
    for again in lambda: opened.do(lambda _: done.append(1)), opened.subject.close:
        with pytest.raises(BrokenDeviceError):
            again()
    end.set()
    assert has_ended(opened.subject)
    assert done == []
    opened.made[0].closed += 1  # nobody closes it


def test_an_opening_that_is_given_up_is_told() -> None:
    end = threading.Event()
    thread = LaneThread(lambda: cast("Any", end.wait(PATIENCE)), lambda error: None)
    thread.give_up(BROKEN)
    with pytest.raises(BrokenDeviceError):
        thread.open()
    end.set()


# --- A spent lane is closed, and another one is opened where it is needed -------------------------


class Renewing(Opened):
    def __init__(self) -> None:
        super().__init__()
        self.ending = EndingThreads()
        self.subject = Renewed(self.open, self.told.append, self.ending)


@pytest.fixture
def renewing() -> Iterator[Renewing]:
    renewing = Renewing()
    yield renewing
    renewing.subject.close()
    assert [lane.closed for lane in renewing.made] == [1] * len(renewing.made)


def test_it_is_opened_where_it_is_needed_and_stays_open(renewing: Renewing) -> None:
    assert renewing.made == []
    assert renewing.use() is renewing.use()
    assert len(renewing.made) == 1


def spend_and_fail(lane: FakeLane) -> None:
    lane.spent = True
    raise DeviceError("no memory")


@pytest.mark.parametrize("work", [spend, spend_and_fail])
def test_a_spent_one_is_closed_at_once_and_the_next_has_a_thread_of_its_own(
    renewing: Renewing, work: Callable[[FakeLane], None]
) -> None:
    with suppress(DeviceError):
        renewing.do(work)
    assert [lane.closed for lane in renewing.made] == [1]
    assert not renewing.use().threads & renewing.made[0].threads


def test_what_opening_raises_is_raised_and_the_next_use_tries_again(renewing: Renewing) -> None:
    renewing.failing = 0
    with pytest.raises(DeviceError, match="no stream"):
        renewing.use()
    assert renewing.use() is renewing.made[0]


@pytest.mark.parametrize(("error", "told"), [(DeviceError("stays"), []), (BROKEN, [BROKEN])])
def test_of_a_spent_one_that_cannot_be_closed_a_broken_device_alone_is_told(
    renewing: Renewing, error: Exception, told: list[NpucallError]
) -> None:
    renewing.use().close_error = error
    renewing.do(spend)
    assert renewing.use() is renewing.made[1]
    assert renewing.told == told


def test_threads_that_it_left_are_known_until_they_have_ended(renewing: Renewing) -> None:
    for _ in range(3):
        renewing.do(spend)
    renewing.subject.close()
    assert renewing.ending.wait(PATIENCE) == 0


def test_what_was_never_opened_is_closed_without_harm(renewing: Renewing) -> None:
    renewing.subject.close()
    assert renewing.made == []
    assert renewing.subject.busy_since is None
    renewing.subject.give_up(BROKEN)


# --- Lanes: each call on a free one, memory made room for -----------------------------------------


@pytest.fixture
def three() -> Iterator[Opened]:
    three = Opened()
    three.subject = Lanes(three.open, 3, LONG, three.told.append)
    yield three
    three.subject.close()
    assert [lane.closed for lane in three.made] == [1, 1, 1]


def test_the_lane_that_was_used_last_is_used_next(three: Opened) -> None:
    assert len({id(three.use()) for _ in range(5)}) == 1


def test_calls_at_a_time_are_on_lanes_of_their_own(three: Opened) -> None:
    used = three.do(lambda one: [one, *three.do(lambda two: [two, three.use()])])
    assert {id(lane) for lane in used} == {id(lane) for lane in three.made}


def test_lanes_that_are_open_are_closed_if_another_does_not_open() -> None:
    opened = Opened(failing=2)
    with pytest.raises(DeviceError, match="no stream"):
        Lanes(opened.open, 3, LONG, opened.told.append)
    assert [lane.closed for lane in opened.made] == [1, 1]


def test_a_call_that_finds_no_memory_is_run_once_more_when_idle_lanes_gave_theirs(
    three: Opened,
) -> None:
    def needs_more(lane: FakeLane) -> int:
        if not lane.emptied:
            raise OutOfMemoryError("memory: found too little")
        return 7

    assert three.do(needs_more) == 7
    assert [lane.emptied for lane in three.made] == [1, 1, 1]


def test_a_lane_at_work_keeps_what_it_uses(three: Opened) -> None:
    def fail(_: FakeLane) -> None:
        raise OutOfMemoryError("memory: found too little")

    def hold(lane: FakeLane) -> int:
        with pytest.raises(OutOfMemoryError):
            three.do(fail)
        return lane.emptied

    assert three.do(hold) == 0
    assert sum(lane.emptied for lane in three.made) == 2


def test_a_lane_that_breaks_the_device_is_told_once(three: Opened) -> None:
    for _ in range(3):
        with pytest.raises(BrokenDeviceError):
            three.do(breaks)
    assert three.told == [BROKEN]


# --- A thread has ended when the system says so, not when Python does -----------------------------


def native() -> tuple[NativeThread, threading.Event]:
    """A thread that ends when it is told."""
    made: list[NativeThread] = []
    end, known = threading.Event(), threading.Event()

    def run() -> None:
        made.append(NativeThread())
        known.set()
        end.wait(PATIENCE)

    threading.Thread(target=run).start()
    assert known.wait(PATIENCE)
    return made[0], end


def test_a_thread_that_runs_has_not_ended() -> None:
    (thread, end), ending = native(), EndingThreads()
    ending.add(thread)
    assert (thread.has_ended, ending.wait(0.01)) == (False, 1)
    end.set()
    assert ending.wait(PATIENCE) == 0
    assert thread.has_ended


def test_a_thread_counts_as_ended_where_another_has_its_number_or_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    thread = NativeThread()
    assert not thread.has_ended
    monkeypatch.setattr(native_threads, "_start_time", lambda stat: "another one's")
    assert thread.has_ended
    monkeypatch.undo()
    monkeypatch.setattr(native_threads, "Path", lambda _: tmp_path / "nothing")
    assert NativeThread().has_ended


def test_threads_that_have_ended_are_not_kept() -> None:
    ending = EndingThreads()
    for _ in range(5):
        (thread, end), last = native(), EndingThreads()
        end.set()
        last.add(thread)
        assert last.wait(PATIENCE) == 0
        ending.add(thread)
    assert len(ending._threads) == 1
