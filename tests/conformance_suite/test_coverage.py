"""Coverage: which of the required cases were judged, and the verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npucall_client.conformance.reporting.coverage import NOT_RUN, Chosen, coverage, required
from npucall_client.conformance.reporting.formats.text import covered, verdict
from npucall_client.conformance.reporting.report import Outcome, Report, Server

SERVER = Server("local:", "local", "Ascend910B1", "Ascend910B", "1", "i", "documented", ("a",))
CELLS = [("a", "f32", "grid"), ("a", "f32", "edge"), ("a", "bf16", "grid"), ("b", "f32", "grid")]
EVERY = required(CELLS)
PASSED = [Outcome("id", title, "", block, dtype, "passed") for title, dtype, block in CELLS]


def skipped(outcome: Outcome, why: str, *, lowers: bool) -> Outcome:
    return replace(outcome, status="skipped", problems=(why,), lowers=lowers)


def report(*outcomes: Outcome, allow_skipped: bool = False, chosen: Chosen | None = None) -> Report:
    return Report(
        "cpu-strict", 0, SERVER, outcomes=list(outcomes), required=EVERY,
        allow_skipped=allow_skipped, chosen=chosen or Chosen(),
    )  # fmt: skip


def test_a_run_in_which_all_passed_conforms_and_covers_all() -> None:
    found = report(*PASSED)
    assert (found.verdict, found.coverage().complete) == ("conforms", True)
    assert found.coverage().operators.judged == ("a", "b")
    assert found.coverage().dtypes.judged == ("a f32", "a bf16", "b f32")
    assert found.coverage().blocks.judged == ("grid", "edge")
    assert (found.coverage().judged, found.coverage().required) == (4, 4)


def test_a_skipped_case_that_should_have_been_judged_lowers_the_verdict() -> None:
    *rest, last = PASSED
    found = report(*rest, skipped(last, "QUEUE_FULL", lowers=True))
    assert (found.verdict, found.passed) == ("conforms in part", False)
    assert found.coverage().operators.missing == {"b": "QUEUE_FULL"}
    assert found.coverage().blocks.partly == {"grid": 1}
    assert found.coverage().lowering == {"QUEUE_FULL": 1}


def test_a_skipped_case_that_is_allowed_does_not_lower_the_verdict_but_is_told() -> None:
    *rest, last = PASSED
    found = report(*rest, skipped(last, "QUEUE_FULL", lowers=True), allow_skipped=True)
    assert found.verdict == "conforms"
    assert verdict(found) == "Conforms: all 3 cases passed; 1 case not judged, as allowed"


def test_a_case_for_another_product_does_not_count() -> None:
    *rest, last = PASSED
    found = report(*rest, skipped(last, "b is not on Ascend910B", lowers=False))
    assert (found.verdict, found.coverage().required) == ("conforms", 3)
    assert found.coverage().elsewhere == {"b is not on Ascend910B": 1}


def test_a_case_without_an_outcome_lowers_the_verdict() -> None:
    found = report(*PASSED[:3])
    assert found.verdict == "conforms in part"
    assert found.coverage().operators.missing == {"b": NOT_RUN}


def test_a_failure_is_no_conformity_in_part_whatever_is_allowed() -> None:
    first, *rest = PASSED
    found = report(replace(first, status="failed", problems=("x",)), *rest, allow_skipped=True)
    assert found.verdict == "fails"


@pytest.mark.parametrize("outcomes", [[], [skipped(PASSED[0], "x", lowers=False)]])
def test_a_run_in_which_nothing_ran_fails(outcomes: list[Outcome]) -> None:
    assert report(*outcomes, allow_skipped=True).verdict == "fails"


def test_a_path_by_which_no_case_travelled_lowers_the_verdict() -> None:
    wanted = required([("a", "f32", "paths")], ("stream", "pool"))
    found = replace(
        report(Outcome("id", "a", "", "paths", "f32", "passed", paths=("stream",))), required=wanted
    )
    assert found.verdict == "conforms in part"
    assert found.coverage().paths.judged == ("stream",)
    assert list(found.coverage().paths.missing) == ["pool"]
    assert verdict(found) == "Conforms in part: 1 case passed, 1 path not judged"


def test_the_verdict_of_filtered_cases_says_what_was_chosen() -> None:
    chosen = Chosen(operators=("Glu",), dtypes=("bf16",), quick=True)
    assert not chosen.whole
    assert verdict(report(*PASSED, chosen=chosen)) == (
        "Conforms in what was chosen (--quick --operator Glu --dtype bf16): all 4 cases passed"
    )


def test_coverage_is_told_in_a_few_lines() -> None:
    *rest, last = PASSED
    found = report(*rest, skipped(last, "RESERVED", lowers=True))
    assert covered(found) == [
        (
            "judged on Ascend910B: 3 of 4 cases; 1 of 2 operators, 2 of 3 operators and dtypes, "
            "2 of 2 blocks"
        ),
        "not judged: b: RESERVED",
        "not judged: b f32: RESERVED",
        "1 case should have been judged: RESERVED",
    ]


def test_coverage_counts_each_case_of_a_cell() -> None:
    wanted = required([CELLS[0]] * 5)
    found = coverage(wanted, PASSED[:1], "Ascend910B")
    assert (found.judged, found.required) == (1, 5)
    assert found.operators.partly == {"a": 4}
