"""Each report is read back: JSON and JUnit XML; and what all reports say alike."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from npucall_client.conformance.reporting.formats import html, json_file, junit
from npucall_client.conformance.reporting.formats.text import clean, number, rerun
from npucall_client.conformance.reporting.report import Report

from .shown import (
    HISTOGRAM,
    KL,
    OUTSIDE,
    PASSED,
    REPORT,
    SERVER,
    TARGET,
    WORSE,
    fine,
    hostile,
)

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = Report("cpu-strict", 0, SERVER)
EVERY = pytest.mark.parametrize(
    "report", [REPORT, fine(), hostile(), NOTHING], ids=["all", "fine", "hostile", "nothing"]
)


def as_json(report: Report) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(json_file.render(report), parse_constant=refuse)


def as_xml(report: Report) -> ET.Element:
    return ET.fromstring(junit.render(report))


@pytest.mark.parametrize("module", [json_file, junit, html])
@EVERY
def test_every_report_can_be_written_as_utf8(module: Any, report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report"
    module.write(report, path)
    assert path.read_bytes().decode() == module.render(report)


# --- text -----------------------------------------------------------------------------------------


def test_the_command_that_runs_a_case_again_has_what_its_data_depend_on() -> None:
    assert rerun(REPORT, OUTSIDE) == (
        "npucall conform npu-7:50051 --profile cann-standard --seed 7 "
        "--case aclnnKlDivBackward/broadcast/f16-mean-3x4-0003"
    )


def test_the_command_names_the_second_server() -> None:
    both = Report("cpu-strict", 0, SERVER, replace(SERVER, target="unix:/a b"))
    assert shlex.split(rerun(both, PASSED))[3:5] == ["--against", "unix:/a b"]


def test_a_hostile_case_stays_one_word_of_the_command() -> None:
    report = hostile()
    words = shlex.split(rerun(report, report.failures[0]))
    assert words[-1] == clean(report.failures[0].case)
    assert len(words) == 11


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.4999, "0.5"), (3.5e5, "3.5e+05"), (math.inf, "∞")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


# --- JSON -----------------------------------------------------------------------------------------


def test_json_has_the_keys_that_its_documentation_names() -> None:
    data = as_json(REPORT)
    assert list(data) == [
        "format", "format_version", "passed", "profile", "seed", "quick", "started", "seconds",
        "versions", "server", "against", "unstated", "ulp_bins", "total", "by_operator_and_dtype",
        "by_operator_and_block", "contradictions", "skipped", "outcomes", "verdict", "chosen",
        "allow_skipped", "coverage", "pairs", "baseline", "causes",
    ]  # fmt: skip
    assert set(data["server"]) == {
        "target", "device", "soc", "product", "version", "instance", "default_variant", "variants",
    }  # fmt: skip
    assert set(data["total"]) == {
        "cases", "passed", "failed", "skipped", "ulp", "ulp_case", "ratio", "ratio_case",
        "histogram", "accepted", "run_ns",
    }  # fmt: skip
    assert set(data["outcomes"][0]) == {
        "case", "operator", "variant", "block", "dtype", "status", "problems", "ulp", "ratio",
        "worst", "histogram", "run_ns", "total_ns", "truth_ns", "contradiction", "lowers", "paths",
        "paths_skipped", "findings", "wrong", "columns",
    }  # fmt: skip


def test_json_says_what_was_asked_and_of_whom() -> None:
    data = as_json(REPORT)
    assert (data["profile"], data["seed"], data["passed"]) == ("cann-standard", 7, False)
    assert (data["server"]["soc"], data["server"]["target"]) == ("Ascend910B1", "npu-7:50051")
    assert data["against"] is None


def test_json_has_every_outcome_in_order() -> None:
    assert [each["case"] for each in as_json(REPORT)["outcomes"]] == [
        outcome.case for outcome in REPORT.outcomes
    ]


def test_json_has_tallies_by_operator_and_dtype() -> None:
    rows = {(r["operator"], r["dtype"]): r for r in as_json(REPORT)["by_operator_and_dtype"]}
    row = rows[KL, "f32"]
    assert (row["cases"], row["passed"], row["failed"]) == (4, 2, 2)
    assert (row["ratio"], row["ratio_case"]) == (0.75, WORSE.case)
    assert (row["ulp"], row["ulp_case"]) == (0.5, PASSED.case)
    assert row["histogram"] == [2 * n for n in HISTOGRAM]
    assert rows[f"{TARGET}.community", "bf16"]["skipped"] == 1


def test_json_has_infinity_as_a_string_that_float_reads() -> None:
    total = as_json(REPORT)["total"]
    assert total["ulp"] == "inf"
    assert float(total["ulp"]) == OUTSIDE.ulp


def test_json_says_for_each_contradiction_who_is_right() -> None:
    found = [(e["number"], e["operator"], e["agrees"]) for e in as_json(REPORT)["contradictions"]]
    assert found == [(7, KL, []), (8, f"{TARGET}.community", ["kernel"])]


def test_json_says_of_failures_alone_how_to_run_them_again() -> None:
    again = [each.get("rerun") for each in as_json(REPORT)["outcomes"]]
    assert [command is not None for command in again] == [
        outcome.status == "failed" for outcome in REPORT.outcomes
    ]


# --- JUnit XML ------------------------------------------------------------------------------------


def test_junit_has_a_suite_for_each_operator_and_its_counts() -> None:
    suites = {suite.get("name"): suite for suite in as_xml(REPORT).findall("testsuite")}
    assert list(suites) == [KL, f"{TARGET}.community"]
    counts = [suites[KL].get(name) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == ["5", "3", "0", "0"]


@EVERY
def test_junit_counts_are_those_of_its_elements(report: Report) -> None:
    root = as_xml(report)
    for element in (root, *root.findall("testsuite")):
        assert int(element.get("tests", "")) == len(element.findall(".//testcase"))
        assert int(element.get("failures", "")) == len(element.findall(".//failure"))
        assert int(element.get("skipped", "")) == len(element.findall(".//skipped"))


def test_junit_has_a_testcase_for_each_case() -> None:
    cases = as_xml(REPORT).findall(".//testcase")
    names = [case.get("name", "") for case in cases]
    assert sorted(names) == sorted(outcome.case for outcome in REPORT.outcomes)
    assert cases[0].get("classname") == f"{KL}.grid"
    assert cases[0].get("time") == "0.002000"


def test_a_failure_in_junit_has_its_first_problem_as_message_and_all_in_its_text() -> None:
    (case,) = (c for c in as_xml(REPORT).iter("testcase") if c.get("name") == OUTSIDE.case)
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "out: too large"
    assert (failure.text or "").splitlines() == ["out: too large", "also", rerun(REPORT, OUTSIDE)]


def test_a_skipped_case_in_junit_says_why() -> None:
    assert [each.get("message") for each in as_xml(REPORT).iter("skipped")] == ["no BF16"]


def test_junit_says_what_was_judged() -> None:
    suite = as_xml(REPORT).find("testsuite")
    assert suite is not None
    facts = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert facts == {
        "profile": "cann-standard",
        "seed": "7",
        "server": "npu-7:50051 (cann:0 as Ascend910B1, Ascend910B)",
        "verdict": "Fails: 3 of 6 cases failed",
        "coverage": (
            "judged on Ascend910B: 6 of 6 cases; 2 of 2 operators, 3 of 3 operators and dtypes, "
            "4 of 4 blocks\nskipped 1 case: no BF16"
        ),
    }
    assert suite.get("timestamp") == "2026-11-20T14:05:57"


def test_hostile_text_comes_through_junit_as_text() -> None:
    report = hostile()
    failure = next(as_xml(report).iter("failure"))
    assert failure.get("message") == clean(report.failures[0].problems[0])
