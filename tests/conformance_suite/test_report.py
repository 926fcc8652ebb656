"""The plain data of a run: tallies, and what can be read of the files."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from npucall_client.conformance.report import Outcome, Report, Server, Sided, Status
from npucall_client.conformance.reports import json_file, junit

if TYPE_CHECKING:
    from pathlib import Path

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


def test_json_is_strict_json_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    json_file.write(MIXED, path)
    data = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert data["outcomes"][2]["ulp"] == "inf"
    assert data["server"]["target"] == "local:"
    assert data["total"]["passed"] == 2
    assert data["passed"] is False


def test_junit_has_a_test_case_of_each_outcome(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    junit.write(MIXED, path)
    root = ET.parse(path).getroot()
    assert {suite.get("name"): suite.get("tests") for suite in root} == {"a": "3", "b": "1"}
    (failure,) = root.iter("failure")
    assert failure.text == "out: wrong"
    assert len(list(root.iter("skipped"))) == 1
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("4", "1", "1")
