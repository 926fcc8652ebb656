"""The suite catches: deliberate faults, each reported in the blocks that are there for it."""

from __future__ import annotations

import pytest
from tests.more import TURNS, every_twelfth

from .faults_of_checks import CHECKS
from .faults_of_classes import CLASSES
from .faults_of_crowd import CROWD
from .faults_of_evaluation import EVALUATION
from .faults_of_formulas import FORMULAS
from .faults_of_large import LARGE
from .faults_of_listings import LISTINGS
from .faults_of_losses import LOSSES
from .faults_of_numbers import NUMBERS
from .faults_of_rounding import ROUNDING
from .judging import failing_blocks, report_on
from .seeded import Fault

FAULTS = (
    *FORMULAS, *CHECKS, *EVALUATION, *LOSSES, *CLASSES, *ROUNDING, *NUMBERS, *LARGE, *CROWD,
    *LISTINGS,
)  # fmt: skip


def reporting_every_block() -> set[str]:
    """Faults of which each is reported in a block that none before it is."""
    seen: set[str] = set()
    chosen = set()
    for fault in FAULTS:
        if fault.found_in - seen:
            seen |= fault.found_in
            chosen.add(fault.title)
    return chosen


FIRST = reporting_every_block()


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(f, marks=TURNS[0 if f.title in FIRST else 1 if number % 8 == 0 else 2])
        for number, f in enumerate(FAULTS)
    ],
    ids=str,
)
def test_a_fault_is_reported_in_the_blocks_that_are_there_for_it(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault.seed(monkeypatch)
    blocks = fault.found_in | fault.spared
    report = report_on(fault.operator, blocks, soc=fault.soc, profile=fault.profile)
    assert failing_blocks(report) == fault.found_in


@pytest.mark.more
@pytest.mark.parametrize(
    ("operator", "soc"), every_twelfth(sorted({(fault.operator, fault.soc) for fault in FAULTS}))
)
def test_the_operator_without_a_fault_passes_the_same_cases(operator: str, soc: str) -> None:
    blocks = frozenset().union(
        *(f.found_in | f.spared for f in FAULTS if (f.operator, f.soc) == (operator, soc))
    )
    report = report_on(operator, blocks, soc=soc)
    assert report.failures == []
    assert report.total().cases > 0
