"""The suite catches: deliberate faults, each reported in the blocks that are there for it."""

from __future__ import annotations

import pytest
from tests.more import TURNS, every_sixth

from .faults_of_checks import CHECKS
from .faults_of_classes import CLASSES
from .faults_of_evaluation import EVALUATION
from .faults_of_formulas import CUT_OFF, FORMULAS
from .faults_of_losses import LOSSES
from .judging import failing_blocks, report_on
from .seeded import Fault

FAULTS = (*FORMULAS, *CHECKS, *EVALUATION, *LOSSES, *CLASSES)


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
        pytest.param(f, marks=TURNS[0 if f.title in FIRST else 1 if number % 4 == 0 else 2])
        for number, f in enumerate(FAULTS)
    ],
    ids=str,
)
def test_a_fault_is_reported_in_the_blocks_that_are_there_for_it(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault.seed(monkeypatch)
    report = report_on(fault.operator, fault.found_in | fault.spared, soc=fault.soc)
    assert failing_blocks(report) == fault.found_in


def test_cutting_off_passes_and_shows_as_an_error_above_half_an_ulp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = worst_ulp(CUT_OFF.operator, "bf16")
    CUT_OFF.seed(monkeypatch)
    assert right <= 0.5  # to nearest
    assert 0.9 < worst_ulp(CUT_OFF.operator, "bf16") < 1  # towards zero


@pytest.mark.parametrize(
    ("operator", "soc"), every_sixth(sorted({(fault.operator, fault.soc) for fault in FAULTS}))
)
def test_the_operator_without_a_fault_passes_the_same_cases(operator: str, soc: str) -> None:
    blocks = frozenset().union(
        *(f.found_in | f.spared for f in FAULTS if (f.operator, f.soc) == (operator, soc))
    )
    report = report_on(operator, blocks, soc=soc)
    assert report.failures == []
    assert report.total().cases > 0


def worst_ulp(operator: str, dtype: str) -> float:
    report = report_on(operator, ("grid",))
    assert report.failures == []
    return report.by_operator_and_dtype()[operator, dtype].ulp
