"""Failures are grouped by what they have in common."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.rows import each

from npucall_conformance.reporting.causes import causes, elements, stable
from npucall_conformance.reporting.report import CaseOutcome

from .faults import of
from .servers import report_on


def refused(case: int, finding: str, operator: str = "a") -> CaseOutcome:
    return CaseOutcome(
        f"{operator}/invalid/{case}", operator, "", "invalid", "f32", "failed",
        (f"{finding} {case}",), findings=(finding,),
    )  # fmt: skip


WRONG = "element [0] of [3] is nan, expected 1: inf ulp, inf of the tolerance; 2 of 3 are outside"
EXPECTED, BLAMED = "expected status 161002, found 161001", "expected ('self',) blamed, found ()"


def test_failures_share_what_was_expected_and_found_as_their_cause() -> None:
    found = causes([*(refused(i, EXPECTED) for i in range(4)), refused(9, BLAMED)])
    told = [(cause.words, len(cause.outcomes)) for cause in found]
    assert told == [(EXPECTED, 4), (BLAMED, 1)]


def test_a_cause_of_many_operators_is_told_once() -> None:
    few = causes([refused(1, "x", f"o{i}") for i in range(3)])
    many = causes([refused(1, "x", f"o{i}") for i in range(70)])
    assert (len(few), len(many)) == (3, 1)
    assert len(many[0].all("title")) == 70


@each(
    ("problem", "text"),
    [
        (
            "out: expected FLOAT (4, 6), found FLOAT (4,)",
            "out: expected FLOAT ..., found FLOAT ...",
        ),
        ("expected status 161002, found None", "expected status 161002, found None"),
        ("expected ('self',) blamed, found ()", "expected ('self',) blamed, found ()"),
        ("caller 3 of 8: expected 1.5e-3", "caller ... of ...: expected ..."),
        ("request 5f3a9c0e12ab failed", "request ... failed"),
        ("expected 738104 ns, found 361001", "expected ... ns, found 361001"),
        ("the same bits, first [0]: nan and -inf", "the same bits, first ...: ... and ..."),
        (
            f"crowd: aclnnMean.builtin/crowd/f32-3x4-0001: out: {WRONG}",
            "crowd: ...: out: wrong numbers",
        ),
    ],
)
def test_a_finding_has_no_numbers_but_statuses(problem: str, text: str) -> None:
    assert stable(problem) == text


def test_a_wrong_sign_in_every_case_reads_as_one_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    of("KlDivBackward", "", "-kl_factor", "kl_factor").apply(monkeypatch)
    failures = report_on("aclnnKlDivBackward", ("grid",)).failures
    first, *rest = causes(failures)
    assert len(failures) > 90
    assert first.words == "out: wrong numbers"
    assert (first.all("dtype"), len(first.outcomes)) == (("f32", "f16", "bf16"), len(failures))
    assert rest == []
    wrong = first.example.wrong
    assert wrong is not None
    assert wrong.found == pytest.approx(-wrong.expected, rel=1e-5)
    assert {*wrong.inputs, *wrong.others} >= {"grad_output", "self", "target", "reduction"}


@each(
    ("places", "text"),
    [
        (range(24), "all 24 elements"),
        ((8, 14), "[1-2, 2], 2 of 24 elements"),
        (range(0, 24, 2), "[:, 0, 2, 4], 12 of 24 elements"),
        ((0, 8, 9), "in flat order 0, 8-9, 3 of 24 elements"),  # they are no block
    ],
)
def test_the_elements_of_a_mask_are_told_by_dimension(places: Sequence[int], text: str) -> None:
    wrong = np.zeros((4, 6), bool)
    wrong.reshape(-1)[list(places)] = True
    assert elements(wrong) == text


def test_of_very_many_elements_the_first_are_named() -> None:
    wrong = np.zeros(98_306, bool)
    wrong[[i * i for i in range(100)]] = wrong[98_304:] = True
    assert elements(wrong) == (
        "[0-1, 4, 9, 16, 25, 36, 49, 64 and more up to 98,305], 102 of 98,306 elements"
    )
