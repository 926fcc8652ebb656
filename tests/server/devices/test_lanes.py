"""Lanes: each call on a free one, all of them opened and closed, memory made room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from npucall.errors import DeviceError, NpucallError, OutOfMemoryError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.lanes import Lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONG = 1000.0


class Lane:
    """Does what the test hands over as a call."""

    def __init__(self) -> None:
        self.broken: NpucallError | None = None
        self.spent = False
        self.emptied = self.closed = 0

    def empty(self) -> None:
        self.emptied += 1

    def close(self) -> None:
        self.closed += 1


class Opened:
    """Lanes, and what was said of them; the opening of one may fail."""

    def __init__(self, count: int, failing: int | None = None) -> None:
        self.made: list[Lane] = []
        self.told: list[NpucallError] = []
        self._failing = failing
        self.lanes = Lanes(cast("Any", self._open), count, LONG, self.told.append)

    def do(self, work: Callable[[Lane], Any]) -> Any:
        return self.lanes.do(cast("Any", work))

    def _open(self) -> Lane:
        if len(self.made) == self._failing:
            raise DeviceError("no stream", lanes=self.made)
        self.made.append(Lane())
        return self.made[-1]


@pytest.fixture
def opened() -> Iterator[Opened]:
    opened = Opened(3)
    yield opened
    opened.lanes.close()
    assert [lane.closed for lane in opened.made] == [1, 1, 1]


def itself(lane: Lane) -> Lane:
    return lane


def test_the_lane_that_was_used_last_is_used_next(opened: Opened) -> None:
    assert len({id(opened.do(itself)) for _ in range(5)}) == 1


def test_calls_at_a_time_are_on_lanes_of_their_own(opened: Opened) -> None:
    used = opened.do(lambda one: [one, *opened.do(lambda two: [two, opened.do(itself)])])
    assert {id(lane) for lane in used} == {id(lane) for lane in opened.made}


def test_lanes_that_are_open_are_closed_if_another_does_not_open() -> None:
    with pytest.raises(DeviceError, match="no stream") as caught:
        Opened(3, failing=2)
    made: Any = caught.value.details["lanes"]
    assert [lane.closed for lane in made] == [1, 1]


def test_a_call_that_finds_no_memory_is_run_once_more_when_idle_lanes_gave_theirs(
    opened: Opened,
) -> None:
    def greedy(lane: Lane) -> int:
        if not lane.emptied:
            raise OutOfMemoryError("memory: found too little")
        return 7

    assert opened.do(greedy) == 7
    assert [lane.emptied for lane in opened.made] == [1, 1, 1]


def test_a_lane_at_work_keeps_what_it_uses(opened: Opened) -> None:
    def fail(_: Lane) -> None:
        raise OutOfMemoryError("memory: found too little")

    def hold(lane: Lane) -> int:
        with pytest.raises(OutOfMemoryError):
            opened.do(fail)
        return lane.emptied

    assert opened.do(hold) == 0
    assert sum(lane.emptied for lane in opened.made) == 2


def test_a_lane_that_breaks_the_device_is_told(opened: Opened) -> None:
    broken = BrokenDeviceError("broken")

    def breaks(lane: Lane) -> None:
        lane.broken = broken
        raise broken

    with pytest.raises(BrokenDeviceError):
        opened.do(breaks)
    assert opened.told == [broken]
