"""A spent lane is closed, and another one is opened in another thread where it is needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import pytest

from npucall.errors import DeviceError, NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.native_threads import EndingThreads
from npucall_server.devices.renewed import Renewed

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKEN = BrokenDeviceError("broken")


class Lane:
    """Knows its thread; its close may fail."""

    def __init__(self) -> None:
        self.broken: NpucallError | None = None
        self.spent = False
        self.thread = threading.current_thread()
        self.closed = 0
        self.close_error: Exception | None = None

    def close(self) -> None:
        self.closed += 1
        if self.close_error is not None:
            raise self.close_error


class Opened:
    """One that opens lanes; the next opening may fail."""

    def __init__(self) -> None:
        self.made: list[Lane] = []
        self.told: list[NpucallError] = []
        self.error: Exception | None = None
        self.ending = EndingThreads()
        self.renewed = Renewed(cast("Any", self._open), self.told.append, self.ending)

    def _open(self) -> Lane:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.made.append(Lane())
        return self.made[-1]

    def use(self) -> Lane:
        lane: Any = self.renewed.do(lambda lane: lane)
        return cast("Lane", lane)


@pytest.fixture
def opened() -> Iterator[Opened]:
    opened = Opened()
    yield opened
    opened.renewed.close()
    assert [lane.closed for lane in opened.made] == [1] * len(opened.made)


def spend(lane: Any) -> None:
    lane.spent = True


def test_it_is_opened_where_it_is_needed_and_stays_open(opened: Opened) -> None:
    assert opened.made == []
    assert opened.use() is opened.use()
    assert len(opened.made) == 1


def test_a_spent_one_is_closed_at_once(opened: Opened) -> None:
    opened.renewed.do(spend)
    assert [lane.closed for lane in opened.made] == [1]


def test_the_next_one_has_a_thread_of_its_own(opened: Opened) -> None:
    opened.renewed.do(spend)
    assert opened.use().thread is not opened.made[0].thread


def test_it_is_replaced_behind_an_error_too(opened: Opened) -> None:
    def fail(lane: Any) -> None:
        lane.spent = True
        raise DeviceError("no memory")

    with pytest.raises(DeviceError, match="no memory"):
        opened.renewed.do(fail)
    assert opened.use() is opened.made[1]


def test_what_opening_raises_is_raised_and_the_next_use_tries_again(opened: Opened) -> None:
    opened.error = DeviceError("no stream")
    with pytest.raises(DeviceError, match="no stream"):
        opened.use()
    assert opened.use() is opened.made[0]


def test_a_spent_one_that_cannot_be_closed_is_nobodys_error(opened: Opened) -> None:
    opened.use().close_error = DeviceError("cannot be freed")
    opened.renewed.do(spend)
    assert opened.use() is opened.made[1]
    assert opened.told == []


def test_a_spent_one_whose_close_breaks_the_device_is_told(opened: Opened) -> None:
    opened.use().close_error = BROKEN
    opened.renewed.do(spend)
    assert opened.told == [BROKEN]


def test_threads_that_it_left_are_known_until_they_have_ended(opened: Opened) -> None:
    for _ in range(3):
        opened.renewed.do(spend)
    opened.renewed.close()
    assert opened.ending.wait(20) == 0


def test_what_was_never_opened_is_closed_without_harm(opened: Opened) -> None:
    opened.renewed.close()
    assert opened.made == []
    assert opened.renewed.busy_since is None
    opened.renewed.give_up(BROKEN)
