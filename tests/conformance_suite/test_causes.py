"""Failures are grouped by what they have in common."""

from dataclasses import replace

import pytest
from tests.rows import each

from npucall_conformance.reporting.causes import causes, stable
from npucall_conformance.reporting.report import CaseOutcome, Wrong

from .faults import of
from .servers import report_on

BLANK = Wrong("out", "[1], 1 of 9 elements", (1,), 1.0, 2.0, {}, {})


def failed(case: int, *patterns: str, size: int = 9) -> CaseOutcome:
    wrong = replace(BLANK, patterns=patterns, size=size)
    return CaseOutcome(
        f"a/grid/{case}", "a", "", "grid", "f32", "failed", ("out: element ...",),
        findings=("out: wrong numbers",), wrong=wrong,
    )  # fmt: skip


def refused(case: int, finding: str, operator: str = "a") -> CaseOutcome:
    return CaseOutcome(
        f"{operator}/invalid/{case}", operator, "", "invalid", "f32", "failed",
        (f"{finding} {case}",), findings=(finding,),
    )  # fmt: skip


THRICE, NAN, SIGN = "3 times too large", "only where self is NaN", "only where self is negative"


def test_the_smallest_failure_that_shows_all_of_a_cause_is_its_example() -> None:
    both = [failed(i, THRICE, NAN, size=9 - i) for i in range(3)]
    (cause,) = causes([failed(8, THRICE, NAN, size=20), *both])
    assert cause.example.case == "a/grid/2"


EXPECTED, BLAMED = "expected status 161002, found 161001", "expected ('self',) blamed, found ()"


@each(
    ("failures", "expected"),
    [
        # What is wrong and where are told together, unless a case contradicts the place.
        ([failed(i, THRICE, NAN) for i in range(3)], [(f"{THRICE}, {NAN}", 3)]),
        ([*(failed(i, THRICE, NAN) for i in range(4)), failed(5, THRICE)], [(THRICE, 5)]),
        # Two faults of an operator are two causes, the commoner first.
        (
            [*(failed(i, NAN) for i in range(3)), *(failed(i, THRICE) for i in range(5))],
            [(THRICE, 5), (NAN, 3)],
        ),
        # A pattern that few cases show by chance is not told.
        (
            [failed(1, SIGN), *(failed(i) for i in range(2, 20))],
            [("out: wrong numbers", 19)],
        ),
        # Errors are grouped by what was expected and found.
        (
            [*(refused(i, EXPECTED) for i in range(4)), refused(9, BLAMED)],
            [(EXPECTED, 4), (BLAMED, 1)],
        ),
    ],
)
def test_failures_share_a_cause(
    failures: list[CaseOutcome], expected: list[tuple[str, int]]
) -> None:
    assert [(cause.words, len(cause.outcomes)) for cause in causes(failures)] == expected


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
    ],
)
def test_a_finding_has_no_numbers_but_statuses(problem: str, text: str) -> None:
    assert stable(problem) == text


def test_a_wrong_sign_in_every_case_reads_as_one_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    of("KlDivBackward", "", "-kl_factor", "kl_factor").apply(monkeypatch)
    failures = report_on("aclnnKlDivBackward", ("grid",)).failures
    first, *rest = causes(failures)
    assert len(failures) > 90
    assert first.words == "sign flipped"
    assert (first.all("dtype"), len(first.outcomes)) == (("f32", "f16", "bf16"), len(failures))
    assert rest == []
    wrong = first.example.wrong
    assert wrong is not None
    assert wrong.found == pytest.approx(-wrong.expected, rel=1e-5)
    assert {*wrong.inputs, *wrong.others} >= {"grad_output", "self", "target", "reduction"}
