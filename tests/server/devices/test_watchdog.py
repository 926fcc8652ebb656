"""The watchdog finds lanes that have worked for too long, and tells so once."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from npucall_server.devices import watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.errors import NpucallError

NOW = 1000.0
TIMEOUT, GRACE = 0.01, 1.0
LONG = 60.0
PATIENCE = 20.0


@pytest.fixture(autouse=True)
def _standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: NOW))


class Lane:
    """Has been busy for so many seconds, or is idle. Counts how often it is looked at."""

    def __init__(self, seconds: float | None = None) -> None:
        self.since = None if seconds is None else NOW - seconds
        self.given_up: list[NpucallError] = []
        self.looked_at = threading.Semaphore(0)

    @property
    def busy_since(self) -> float | None:
        self.looked_at.release()
        return self.since

    def give_up(self, error: NpucallError) -> None:
        self.given_up.append(error)

    def wait_until_looked_at(self, times: int) -> None:
        for _ in range(times):
            assert self.looked_at.acquire(timeout=PATIENCE)


class Watched:
    """Lanes and their watchdog."""

    def __init__(self, *lanes: Lane, timeout: float = TIMEOUT) -> None:
        self.told: list[NpucallError] = []
        self.was_told = threading.Event()
        self.dog = watchdog.Watchdog(cast("Any", lanes), timeout, self._lost)

    def _lost(self, error: NpucallError) -> None:
        self.told.append(error)
        self.was_told.set()


@pytest.fixture
def watched() -> Iterator[list[Watched]]:
    made: list[Watched] = []
    yield made
    for each in made:
        each.dog.close()


def test_a_lane_that_works_too_long_is_told_and_given_up(watched: list[Watched]) -> None:
    late, idle, busy = Lane(LONG), Lane(), Lane(0)
    watched.append(Watched(idle, late, busy))
    assert watched[0].was_told.wait(PATIENCE)
    watched[0].dog.close()
    (error,) = watched[0].told
    assert (late.given_up, idle.given_up, busy.given_up) == ([error], [], [])
    assert str(error) == (
        "a call has run on the device for longer than device_timeout = 0.01 s; "
        "the server exits to be started again"
    )
    assert (error.details["setting"], error.details["limit"]) == ("device_timeout", "0.01")


def test_idle_lanes_and_short_calls_are_left_alone(watched: list[Watched]) -> None:
    idle, busy = Lane(), Lane(TIMEOUT)
    watched.append(Watched(idle, busy))
    busy.wait_until_looked_at(3)
    watched[0].dog.close()
    assert (watched[0].told, busy.given_up, idle.given_up) == ([], [], [])


def test_a_lane_gets_a_second_beyond_its_time(watched: list[Watched]) -> None:
    lane = Lane(TIMEOUT + GRACE)
    watched.append(Watched(lane))
    lane.wait_until_looked_at(3)
    watched[0].dog.close()
    assert watched[0].told == []


def test_all_lanes_that_hang_are_given_up_with_one_error(watched: list[Watched]) -> None:
    lanes = [Lane(LONG) for _ in range(3)]
    watched.append(Watched(*lanes))
    assert watched[0].was_told.wait(PATIENCE)
    watched[0].dog.close()
    assert len(watched[0].told) == 1
    assert [lane.given_up for lane in lanes] == [watched[0].told] * 3


def test_what_hangs_later_is_given_up_too_and_told_once(watched: list[Watched]) -> None:
    first, later = Lane(LONG), Lane()
    watched.append(Watched(first, later))
    assert watched[0].was_told.wait(PATIENCE)
    later.since = NOW - LONG
    later.wait_until_looked_at(3)
    watched[0].dog.close()
    assert len(watched[0].told) == 1
    assert (first.given_up, later.given_up) == (watched[0].told, watched[0].told)


def test_it_ends_at_once_when_it_is_closed() -> None:
    watched = Watched(Lane(), timeout=1000.0)
    watched.dog.close()
    assert not watched.dog._thread.is_alive()
