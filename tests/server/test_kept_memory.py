"""Kept memory goes back when no call has come for a while, once after each time of work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from npucall_server.kept_memory import IdleMemory, KeptMemory


def test_after_work_memory_goes_back_once_and_not_while_a_call_runs() -> None:
    executor: Any = SimpleNamespace(calls_admitted=0, calls_in_flight=0)
    given: list[int] = []
    idle = IdleMemory(executor, lambda: given.append(executor.calls_admitted))

    def looks(admitted: int, in_flight: int) -> list[int]:
        """What was given back after a few looks, and the calls that had been admitted then."""
        executor.calls_admitted, executor.calls_in_flight = admitted, in_flight
        for _ in range(3):
            idle.look()
        return given

    assert looks(admitted=0, in_flight=0) == []
    assert looks(admitted=1, in_flight=0) == [1]
    assert looks(admitted=1, in_flight=0) == [1]
    assert looks(admitted=3, in_flight=1) == [1]
    assert looks(admitted=3, in_flight=0) == [1, 3]
    executor.calls_admitted = 4
    idle.look()
    assert given == [1, 3]  # a call has come since the last look


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
