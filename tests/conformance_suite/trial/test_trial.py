"""Of faults that the suite's authors were not told, it catches as many as it should."""

from __future__ import annotations

import pytest

from .faults import FAULTS
from .run import tried

COUNTED = [fault for fault in FAULTS if not fault.allowed]
QUICK, FULL = 0.75, 0.95


@pytest.mark.long
@pytest.mark.parametrize(("quick", "least"), [(True, QUICK), (False, FULL)], ids=["quick", "full"])
def test_most_faults_that_nobody_was_told_are_caught(quick: bool, least: float) -> None:
    escaped = [fault.id for fault in COUNTED if not tried(fault, quick=quick).caught]
    assert len(escaped) <= (1 - least) * len(COUNTED), escaped


@pytest.mark.long
@pytest.mark.parametrize("over", ["local", "socket"])
def test_the_same_servers_without_a_fault_pass(over: str) -> None:
    """Else a fault would count as caught that nobody saw."""
    alike = {(f.soc, f.profile, f.operators): f for f in FAULTS if f.over == over}
    found = {fault.id: tried(fault, quick=True, planted=False) for fault in alike.values()}
    assert {name: one.problem for name, one in found.items() if one.caught} == {}


def test_every_fault_can_be_planted() -> None:
    for fault in FAULTS:
        if fault.over == "local":
            with pytest.MonkeyPatch.context() as patch:
                fault.plant(patch)
