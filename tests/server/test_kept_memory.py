"""Kept memory goes back when no call has come for a while, once after each time of work."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from npucall_server.kept_memory import IdleMemory, KeptMemory

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 20.0


@dataclass
class Calls:
    """As much of an executor as is looked at; counts how often somebody looked."""

    admitted: int = 0
    calls_in_flight: int = 0
    looks: int = 0

    def __post_init__(self) -> None:
        self.looked = threading.Condition()

    @property
    def calls_admitted(self) -> int:
        with self.looked:
            self.looks += 1
            self.looked.notify_all()
            return self.admitted

    def wait_for_looks(self, more: int) -> None:
        with self.looked:
            wanted = self.looks + more
            assert self.looked.wait_for(lambda: self.looks >= wanted, PATIENCE)


@pytest.fixture
def watched() -> Iterator[tuple[Calls, list[str]]]:
    calls = Calls()
    given: list[str] = []
    executor: Any = calls
    idle = IdleMemory(executor, 0.001, lambda: given.append("back"))
    idle.start()
    yield calls, given
    idle.stop()


def test_an_executor_that_never_worked_has_nothing_to_give_back(
    watched: tuple[Calls, list[str]],
) -> None:
    calls, given = watched
    calls.wait_for_looks(5)
    assert given == []


def test_after_work_memory_goes_back_once(watched: tuple[Calls, list[str]]) -> None:
    calls, given = watched
    calls.admitted = 1
    calls.wait_for_looks(6)
    assert given == ["back"]
    calls.admitted = 2
    calls.wait_for_looks(6)
    assert given == ["back", "back"]


def test_nothing_goes_back_while_a_call_runs(watched: tuple[Calls, list[str]]) -> None:
    calls, given = watched
    calls.calls_in_flight, calls.admitted = 1, 1
    calls.wait_for_looks(6)
    assert given == []
    calls.calls_in_flight = 0
    calls.wait_for_looks(6)
    assert given == ["back"]


@pytest.mark.parametrize(
    ("resident", "size", "given_back"),
    [(500, 500, 0), (600, 500, 1), (600, 400, 0), (990, 63, 1), (1000, 61, 0)],
)
def test_a_large_call_has_kept_memory_given_back_where_it_would_be_too_much(
    resident: int, size: int, given_back: int
) -> None:
    given: list[str] = []
    now = [0]
    subject = KeptMemory(1000, lambda: given.append("back"), lambda: now[0])
    now[0] = resident
    subject.make_room(size)
    assert len(given) == given_back
