"""Whatever fails behind a failure, the first one is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest
from tests.more import only

from .faults import failure
from .situations import SITUATIONS, Situation, l1, rsub

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.control import Simulator

    from .opened import Opened

    Open = Callable[..., Opened]

FIRST, OTHERS = 207012, 207013
"""Statuses of calls that fail on devices that go on."""
MANY = 80
BOTH = (False, True)
Told: TypeAlias = "tuple[str, str] | None"


@pytest.mark.parametrize("name", only(*SITUATIONS))
def test_the_first_failure_of_a_call_is_told(
    open_device: Open, simulator: Simulator, name: str
) -> None:
    situation = SITUATIONS[name]

    def ready() -> tuple[Opened, Callable[[], object]]:
        opened = used(open_device, situation)
        asked = situation.then(opened.device)
        return opened, lambda: opened.run(asked)

    assert told_otherwise(simulator, ready) == {}


def test_the_first_failure_of_a_plan_is_told(open_device: Open, simulator: Simulator) -> None:
    def ready() -> tuple[Opened, Callable[[], object]]:
        opened = open_device()
        asked = rsub(opened.device)
        return opened, lambda: opened.plan(asked)

    assert told_otherwise(simulator, ready) == {}


def test_the_first_failure_of_closing_is_told(open_device: Open, simulator: Simulator) -> None:
    def ready() -> tuple[Opened, Callable[[], object]]:
        opened = used(open_device, Situation(rsub, (l1, rsub)))
        return opened, opened.close

    assert told_otherwise(simulator, ready) == {}


def test_the_first_failure_of_opening_is_told(open_device: Open, simulator: Simulator) -> None:
    opened = open_device()
    calls = total(simulator)
    opened.close()
    otherwise = {}
    for nth in range(1, calls + 1):
        alone, first = (told_at_opening(open_device, simulator, nth, behind) for behind in BOTH)
        if alone not in (None, first):
            otherwise[nth] = alone, first
    assert otherwise == {}


def told_at_opening(open_device: Open, simulator: Simulator, nth: int, all_behind: bool) -> Told:
    opened: list[Opened] = []
    answer = told(simulator, nth, lambda: opened.append(open_device()), all_behind=all_behind)
    for each in opened:
        each.abandon()
    simulator.reset()
    return answer


def used(open_device: Open, situation: Situation) -> Opened:
    opened = open_device(**situation.settings)
    for ask in situation.before:
        assert opened.serves(ask(opened.device))
    return opened


def told_otherwise(
    simulator: Simulator, ready: Callable[[], tuple[Opened, Callable[[], object]]]
) -> dict[int, tuple[Told, Told]]:
    """For each C function that some work calls, by its place: what is told if it fails alone.

    And what if all behind it fails too, where that differs.
    """
    otherwise: dict[int, tuple[Told, Told]] = {}
    nth = 0
    while True:
        nth += 1
        answers = []
        for all_behind in BOTH:
            opened, work = ready()
            before = total(simulator)
            answers.append(told(simulator, nth, work, all_behind=all_behind))
            calls = total(simulator) - before
            opened.abandon()
        alone, first = answers
        if alone is not None and alone != first:
            otherwise[nth] = alone, first
        if nth > calls:
            return otherwise


def total(simulator: Simulator) -> int:
    return sum(simulator.counters()["calls"].values())


def told(simulator: Simulator, nth: int, work: Callable[[], object], *, all_behind: bool) -> Told:
    """Function and status of the error when the nth call of any C function fails."""
    simulator.fail("*", nth, status=FIRST)
    for later in range(1, MANY * all_behind):
        simulator.fail("*", nth + later, status=OTHERS)
    error = failure(work)
    simulator.clear_faults()
    return None if error is None else (error.details["function"], error.details["device_status"])
