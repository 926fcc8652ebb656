"""Every C function that opening or closing the device uses fails: nothing stays open."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from npucall_server.devices.cann.status_table import Fate

from .faults import Fault, failure, status_for
from .situations import l1, rsub

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulator.control import Simulator

    from npucall.errors import NpucallError

    from .opened import Opened

    Open = Callable[..., Opened]

CHOICE = "aclrtSetDeviceSatMode"
"""Products without the choice may refuse it."""
SOC_NAME, INTERNAL_ERROR = "aclrtGetSocName", 500000
SETTINGS = {"lanes": 2, "deterministic": True}

every_fate = pytest.mark.parametrize("fate", Fate, ids=str)


@every_fate
def test_what_fails_at_opening_is_named_and_nothing_stays_open(
    open_device: Open, simulator: Simulator, fate: Fate
) -> None:
    found = []
    for fault in faults_of(calls_of_opening(open_device), fate):
        fault.set(simulator)
        error = failure(lambda: open_device(**SETTINGS).close())
        needless = fault.function == CHOICE or fault.tolerated
        found += [f"{fault}: {error!r}"] if needless and error else []
        found += [] if needless else misfits(fault, error)
        found += left(simulator, fault)
    assert found == []


@every_fate
def test_what_fails_at_closing_is_named_and_nothing_stays_open(
    open_device: Open, simulator: Simulator, fate: Fate
) -> None:
    found = []
    for fault in faults_of(calls_of_closing(open_device), fate):
        opened = used(open_device)
        fault.set(simulator)
        error = failure(opened.close)
        found += fault.misfits(error) + left(simulator, fault)
    assert found == []


def calls_of_opening(open_device: Open) -> dict[str, int]:
    opened = open_device(**SETTINGS)
    calls: dict[str, int] = opened.simulator.counters()["calls"]
    opened.close()
    return calls


def calls_of_closing(open_device: Open) -> dict[str, int]:
    opened = used(open_device)
    before = opened.simulator.counters()["calls"]
    opened.close()
    after = opened.simulator.counters()["calls"]
    return {name: count - before.get(name, 0) for name, count in after.items()}


def used(open_device: Open) -> Opened:
    """A device both of whose lanes keep memory and descriptors."""
    opened = open_device(**SETTINGS)
    for asked in (l1(opened.device), rsub(opened.device)):
        assert opened.runs_around(asked, partial(opened.run, asked))
    return opened


def faults_of(calls: dict[str, int], fate: Fate) -> Iterator[Fault]:
    """The first two calls of each function."""
    for function, count in calls.items():
        for nth in range(1, min(count, 2) + 1):
            yield Fault(function, status_for(fate, function), nth)


def misfits(fault: Fault, error: NpucallError | None) -> list[str]:
    if fault.function == SOC_NAME:  # it answers a null pointer, and no status
        fault = Fault(SOC_NAME, INTERNAL_ERROR)
    return fault.misfits(error)


def left(simulator: Simulator, fault: Fault) -> list[str]:
    """What stayed open, and what was undefined; both are forgotten."""
    live, violations = simulator.live_objects(), simulator.violations()
    simulator.reset()
    return [f"{fault}: {what}" for what in (live, violations) if what]
