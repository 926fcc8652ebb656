"""Coverage: which of the required cases were judged, and the verdict."""

from dataclasses import replace

from tests.rows import each

from npucall.dtypes import BF16
from npucall_conformance.cases.select import Selection
from npucall_conformance.reporting.report import (
    NOT_RUN,
    CaseOutcome,
    JudgedServer,
    Report,
)
from npucall_conformance.reporting.wording import remarks, verdict

SERVER = JudgedServer(
    "local:", "local", "Ascend910B1", "Ascend910B", "1", "i", "documented", ("a",)
)
CELLS = [("a", "f32", "grid"), ("a", "f32", "edge"), ("a", "bf16", "grid"), ("b", "f32", "grid")]
PASSED = [CaseOutcome("id", title, "", block, dtype, "passed") for title, dtype, block in CELLS]


def skipped(outcome: CaseOutcome, why: str, *, lowers: bool) -> CaseOutcome:
    return replace(outcome, status="skipped", problems=(why,), lowers=lowers)


def report(
    *outcomes: CaseOutcome, allow_skipped: bool = False, chosen: Selection | None = None
) -> Report:
    return Report(
        "cpu-strict", 0, SERVER, outcomes=list(outcomes), required=4,
        allow_skipped=allow_skipped, chosen=chosen or Selection(),
    )  # fmt: skip


*REST, LAST = PASSED
BUSY = skipped(LAST, "QUEUE_FULL", lowers=True)
ELSEWHERE = skipped(LAST, "b is not on Ascend910B", lowers=False)
FAILED = replace(LAST, status="failed", problems=("x",))


@each(
    ("found", "expected"),
    [
        (report(*PASSED), "conforms"),
        (report(*REST, BUSY), "conforms in part"),
        (report(*REST, BUSY, allow_skipped=True), "conforms"),
        (report(*REST, ELSEWHERE), "conforms"),
        (report(*REST), "conforms in part"),
        (report(*REST, FAILED, allow_skipped=True), "fails"),
        (report(allow_skipped=True), "fails"),  # nothing ran
        (report(ELSEWHERE, allow_skipped=True), "fails"),
    ],
)
def test_the_verdict_follows_from_what_had_to_be_judged(found: Report, expected: str) -> None:
    assert (found.verdict, found.passed) == (expected, expected == "conforms")


def test_coverage_counts_each_case_up_to_all() -> None:
    found = report(*PASSED).coverage()
    assert found.complete
    assert (found.judged, found.required) == (4, 4)
    found = report(*PASSED[:1]).coverage()
    assert (found.judged, found.required, found.lowering) == (1, 4, {NOT_RUN: 3})


def test_what_was_not_judged_is_told_with_the_reason() -> None:
    found = report(*REST, BUSY).coverage()
    assert found.lowering == {"QUEUE_FULL": 1}
    allowed = verdict(report(*REST, BUSY, allow_skipped=True))
    assert allowed == "Conforms: all 3 cases passed; 1 case not judged, as allowed"
    found = report(*REST, ELSEWHERE).coverage()
    assert (found.required, found.elsewhere) == (3, {"b is not on Ascend910B": 1})


def test_a_path_by_which_no_case_travelled_lowers_the_verdict() -> None:
    found = replace(
        report(CaseOutcome("id", "a", "", "paths", "f32", "passed", paths=("stream",))),
        required=1, paths=("stream", "plan"),
    )  # fmt: skip
    assert found.verdict == "conforms in part"
    covered = found.coverage()
    assert (covered.paths, covered.paths_missing) == (("stream",), ("plan",))
    assert verdict(found) == "Conforms in part: 1 case passed, 1 path not judged"


def test_the_verdict_of_filtered_cases_says_what_was_chosen() -> None:
    chosen = Selection(operators=("Glu",), dtypes=(BF16,), quick=True)
    assert not chosen.whole
    assert verdict(report(*PASSED, chosen=chosen)) == (
        "Conforms in what was chosen (--quick --operator Glu --dtype bf16): all 4 cases passed"
    )


def test_coverage_is_told_in_a_few_lines() -> None:
    found = report(*REST, skipped(LAST, "RESERVED", lowers=True))
    assert remarks(found)[:-1] == [
        "judged on Ascend910B: 3 of 4 cases",
        "1 case should have been judged: RESERVED",
    ]
