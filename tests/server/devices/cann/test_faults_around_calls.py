"""Opening or closing the device fails; and whatever fails behind a failure, the first is told."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import pytest
from tests.more import only
from tests.simulator.control import Simulator

from npucall.errors import NpucallError
from npucall.statuses import Fate

from .calls import SITUATIONS, Case, l1, rsub
from .faults import Fault, failure, fault_of
from .opened import Open, Opened
from .test_faults import Sweep

CHOICE = "aclrtSetDeviceSatMode"
"""Products without the choice may refuse it."""
SOC_NAME, INTERNAL_ERROR = "aclrtGetSocName", 500000
SETTINGS = {"lanes": 2, "deterministic": True}
FIRST, OTHERS = 207012, 207013
"""Statuses of calls that fail on devices that go on."""
MANY = 80
Told: TypeAlias = "tuple[str, str] | None"
Work: TypeAlias = Callable[[], object]


def test_what_fails_at_opening_is_named_and_nothing_stays_open(
    open_device: Open, simulator: Simulator
) -> None:
    opened = open_device(**SETTINGS)
    calls = simulator.counters()["calls"]
    opened.close()
    found = []
    for fault in faults_of(calls):
        fault.set(simulator)
        error = failure(lambda: open_device(**SETTINGS).close())
        if fault.function == CHOICE or fault.tolerated:
            found += [f"{fault}: {error!r}"] if error else []
        else:
            found += misfits(fault, error)
        found += left(simulator, fault)
    assert found == []


def test_what_fails_at_closing_is_named_and_nothing_stays_open(
    open_device: Open, simulator: Simulator
) -> None:
    opened = with_kept_memory(open_device)
    calls, found = opened.functions(opened.close), []
    for fault in faults_of(calls):
        opened = with_kept_memory(open_device)
        fault.set(simulator)
        found += fault.misfits(failure(opened.close)) + left(simulator, fault)
    assert found == []


def with_kept_memory(open_device: Open) -> Opened:
    """A device both of whose lanes keep memory and descriptors."""
    opened = open_device(**SETTINGS)
    for case in (l1(opened), rsub(opened)):
        assert opened.runs_around(case, partial(opened.run, case))
    return opened


def faults_of(calls: dict[str, int]) -> Iterator[Fault]:
    """The first two calls of each function, with each fate."""
    for fate in Fate:
        for function, count in calls.items():
            for nth in range(1, min(count, 2) + 1):
                yield fault_of(fate, function, nth)


def misfits(fault: Fault, error: NpucallError | None) -> list[str]:
    if fault.function == SOC_NAME:  # it answers a null pointer, and no status
        fault = Fault(SOC_NAME, INTERNAL_ERROR)
    return fault.misfits(error)


def left(simulator: Simulator, fault: Fault) -> list[str]:
    """What stayed open, and what was undefined; both are forgotten."""
    live, violations = simulator.live_objects(), simulator.violations()
    simulator.reset()
    return [f"{fault}: {what}" for what in (live, violations) if what]


@pytest.mark.parametrize("name", only(*SITUATIONS))
def test_the_first_failure_of_a_call_is_told(
    open_device: Open, simulator: Simulator, name: str
) -> None:
    def ready() -> tuple[list[Opened], Work]:
        opened, case = Sweep(open_device, SITUATIONS[name], Opened.serves).ready()
        return [opened], lambda: opened.run(case)

    assert told_otherwise(simulator, ready) == {}


def plan(opened: Opened, case: Case) -> Work:
    return lambda: opened.plan(case)


def close(opened: Opened, case: Case) -> Work:
    assert opened.serves(l1(opened))
    assert opened.serves(case)
    return opened.close


@pytest.mark.parametrize("work", [plan, close])
def test_the_first_failure_of_a_plan_or_of_closing_is_told(
    open_device: Open, simulator: Simulator, work: Callable[[Opened, Case], Work]
) -> None:
    def ready() -> tuple[list[Opened], Work]:
        opened = open_device()
        return [opened], work(opened, rsub(opened))

    assert told_otherwise(simulator, ready) == {}


def test_the_first_failure_of_opening_is_told(open_device: Open, simulator: Simulator) -> None:
    def ready() -> tuple[list[Opened], Work]:
        opened: list[Opened] = []
        return opened, lambda: opened.append(open_device())

    assert told_otherwise(simulator, ready) == {}


def told_otherwise(
    simulator: Simulator, ready: Callable[[], tuple[list[Opened], Work]]
) -> dict[int, tuple[Told, Told]]:
    """For each C function that some work calls, by its place: what is told if it fails alone.

    And what if all behind it fails too, where that differs.
    """
    otherwise: dict[int, tuple[Told, Told]] = {}
    nth = calls = 0
    while nth <= calls:
        nth += 1
        answers = []
        for all_behind in (False, True):
            opened, work = ready()
            before = total(simulator)
            answers.append(told(simulator, nth, work, all_behind=all_behind))
            calls = total(simulator) - before
            for each in opened:
                each.abandon()
            simulator.reset()
        alone, first = answers
        if alone not in (None, first):
            otherwise[nth] = alone, first
    return otherwise


def total(simulator: Simulator) -> int:
    return sum(simulator.counters()["calls"].values())


def told(simulator: Simulator, nth: int, work: Work, *, all_behind: bool) -> Told:
    """Function and status of the error when the nth call of any C function fails."""
    simulator.fail("*", nth, status=FIRST)
    for later in range(1, MANY * all_behind):
        simulator.fail("*", nth + later, status=OTHERS)
    error = failure(work)
    simulator.clear_faults()
    return None if error is None else (error.details["function"], error.details["device_status"])
