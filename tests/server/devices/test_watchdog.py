"""The watchdog finds lanes that have worked for too long, and tells so once."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from npucall.errors import NpucallError
from npucall_server.devices import watchdog

NOW = 1000.0
TIMEOUT, GRACE = 0.01, 1.0
LONG = 60.0
PATIENCE = 20.0


@pytest.fixture(autouse=True)
def _standing_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: NOW))


class FakeLane:
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


class Watched:
    """Lanes and their watchdog, with what it said."""

    def __init__(self, *lanes: FakeLane, timeout: float = TIMEOUT) -> None:
        self.lanes = lanes
        self.told: list[NpucallError] = []
        self.was_told = threading.Event()
        self.dog = watchdog.Watchdog(cast("Any", lanes), timeout, self._lost)

    def _lost(self, error: NpucallError) -> None:
        self.told.append(error)
        self.was_told.set()

    def given_up(self, looks: int = 3) -> list[list[NpucallError]]:
        """The errors of each lane, when all have been looked at so often once more."""
        for lane in self.lanes:
            while lane.looked_at.acquire(blocking=False):
                pass
            for _ in range(looks):
                assert lane.looked_at.acquire(timeout=PATIENCE)
        self.dog.close()
        return [lane.given_up for lane in self.lanes]


@pytest.fixture
def watched() -> Iterator[list[Watched]]:
    made: list[Watched] = []
    yield made
    for each in made:
        each.dog.close()


def test_lanes_that_work_too_long_are_given_up_with_one_error(watched: list[Watched]) -> None:
    lanes = [FakeLane(), FakeLane(LONG), FakeLane(0), FakeLane(LONG)]
    watched.append(Watched(*lanes))
    assert watched[0].was_told.wait(PATIENCE)
    given_up = watched[0].given_up()
    (error,) = watched[0].told
    assert given_up == [[], [error], [], [error]]
    assert str(error) == (
        "a call has run on the device for longer than device_timeout = 0.01 s; "
        "the server exits to be started again"
    )
    assert (error.details["setting"], error.details["limit"]) == ("device_timeout", "0.01")


def test_idle_lanes_and_those_within_a_second_beyond_their_time_are_left_alone(
    watched: list[Watched],
) -> None:
    watched.append(Watched(FakeLane(), FakeLane(TIMEOUT), FakeLane(TIMEOUT + GRACE)))
    assert watched[0].given_up() == [[], [], []]
    assert watched[0].told == []


def test_what_hangs_later_is_given_up_too_and_told_once(watched: list[Watched]) -> None:
    first, later = FakeLane(LONG), FakeLane()
    watched.append(Watched(first, later))
    assert watched[0].was_told.wait(PATIENCE)
    later.since = NOW - LONG
    assert watched[0].given_up() == [watched[0].told] * 2
    assert len(watched[0].told) == 1


def test_it_ends_at_once_when_it_is_closed() -> None:
    watched = Watched(FakeLane(), timeout=1000.0)
    watched.dog.close()
    assert not watched.dog._thread.is_alive()
