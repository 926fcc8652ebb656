"""The plain data of a run and its tallies."""

from __future__ import annotations

import math

import pytest

from npucall_client.conformance.reporting.report import Outcome, Report, Server, Sided, Status

SERVER = Server("local:", "local", "Ascend910B1", "Ascend910B", "1", "i", "documented", ("a",))


def outcome(
    case: str, status: Status = "passed", ulp: float = 0.5, ratio: float = 0.5, dtype: str = "f32"
) -> Outcome:
    title, block, _ = case.split("/")
    problems = ("out: wrong",) if status == "failed" else ()
    return Outcome(
        case, title, "", block, dtype, status, problems, ulp, ratio, histogram=(1, 0, 2)
    )  # fmt: skip


def report(*outcomes: Outcome) -> Report:
    return Report("cpu-strict", 0, SERVER, outcomes=list(outcomes))


MIXED = report(
    outcome("a/grid/1"),
    outcome("a/grid/2", ulp=3.0, ratio=0.9),
    outcome("a/edge/3", "failed", ulp=math.inf, ratio=math.inf, dtype="f16"),
    outcome("b/grid/4", "skipped"),
)


def test_a_tally_counts_what_ran_and_finds_the_worst() -> None:
    tally = MIXED.by_operator_and_dtype()["a", "f32"]
    assert (tally.cases, tally.passed, tally.failed, tally.skipped) == (2, 2, 0, 0)
    assert (tally.ulp, tally.ulp_case) == (3.0, "a/grid/2")
    assert (tally.ratio, tally.ratio_case) == (0.9, "a/grid/2")
    assert tally.histogram == (2, 0, 4)


def test_what_was_skipped_counts_as_such_alone() -> None:
    tally = MIXED.by_operator_and_block()["b", "grid"]
    assert (tally.cases, tally.passed, tally.skipped, tally.ulp) == (0, 0, 1, 0.0)


@pytest.mark.parametrize(
    ("outcomes", "passed"),
    [
        ((outcome("a/grid/1"),), True),
        ((outcome("a/grid/1"), outcome("a/grid/2", "failed")), False),
        ((outcome("a/grid/1", "skipped"),), False),
        ((), False),
    ],
    ids=["passed", "failed", "nothing ran", "nothing"],
)
def test_a_run_passes_if_something_ran_and_nothing_failed(
    outcomes: tuple[Outcome, ...],
    passed: bool,
) -> None:
    assert report(*outcomes).passed is passed


def test_contradictions_come_by_their_number() -> None:
    def sided(case: str, number: int) -> Outcome:
        from dataclasses import replace

        side = Sided(number, "topic", ("x", "y"), ("x",), "x", "1.0")
        return replace(outcome(case), contradiction=side)

    found = report(sided("a/documents/1", 7), sided("a/documents/2", 2)).contradictions()
    assert [each.case for each in found] == ["a/documents/2", "a/documents/1"]
