"""Each report is read back: JSON and JUnit XML; and what all reports say alike."""

import json
import math
import shlex
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

from tests.rows import each

from npucall_conformance.reporting import files
from npucall_conformance.reporting.report import Report
from npucall_conformance.reporting.wording import clean, number, rerun

from .shown import (
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

NOTHING = Report("cpu-strict", 0, SERVER)
EVERY = each("report", [REPORT, fine(), hostile(), NOTHING])
DATA: Any = json.loads(files.as_json(REPORT))


def as_xml(report: Report) -> ET.Element:
    return ET.fromstring(files.as_junit(report))


@EVERY
@each("text_of", [files.as_json, files.as_junit, files.as_page])
def test_every_report_can_be_written_as_utf8(text_of: Any, report: Report) -> None:
    assert text_of(report).encode()


@EVERY
def test_json_has_no_constants_that_json_has_not(report: Report) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    json.loads(files.as_json(report), parse_constant=refuse)


def test_the_command_that_runs_a_case_again_has_what_its_data_depend_on() -> None:
    assert rerun(REPORT, OUTSIDE) == (
        "npucall conform npu-7:50051 --profile cann-standard --seed 7 "
        "--case aclnnKlDivBackward/broadcast/f16-mean-3x4-0003"
    )
    both = Report("cpu-strict", 0, SERVER, replace(SERVER, target="unix:/a b"))
    assert shlex.split(rerun(both, PASSED))[3:5] == ["--against", "unix:/a b"]
    # What is hostile stays one word.
    words = shlex.split(rerun(hostile(), hostile().failures[0]))
    assert (words[-1], len(words)) == (clean(hostile().failures[0].case), 11)


@each(("value", "text"), [(0.0, "0"), (0.4999, "0.5"), (3.5e5, "3.5e+05"), (math.inf, "∞")])
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_json_has_the_keys_that_its_documentation_names() -> None:
    assert list(DATA) == [
        "format", "format_version", "passed", "verdict", "profile", "seed", "quick",
        "allow_skipped", "started", "seconds", "versions", "unstated", "chosen", "server",
        "against", "total", "by_operator_and_dtype", "by_operator_and_block", "outcomes",
        "coverage", "baseline", "causes",
    ]  # fmt: skip
    assert set(DATA["server"]) == {
        "target", "device", "soc", "product", "version", "instance", "default_variant", "variants",
    }  # fmt: skip
    assert set(DATA["total"]) == {
        "cases", "passed", "failed", "skipped", "accepted", "ulp", "ratio", "ratio_case", "run_ns",
    }  # fmt: skip
    assert set(DATA["outcomes"][0]) == {
        "case", "operator", "variant", "block", "dtype", "status", "problems", "ulp", "ratio",
        "run_ns", "total_ns", "truth_ns", "contradiction", "lowers", "paths",
        "paths_skipped", "findings", "wrong",
    }  # fmt: skip


def test_json_says_what_was_asked_of_whom_and_every_outcome_in_order() -> None:
    assert (DATA["profile"], DATA["seed"], DATA["passed"]) == ("cann-standard", 7, False)
    assert (DATA["server"]["soc"], DATA["server"]["target"]) == ("Ascend910B1", "npu-7:50051")
    assert DATA["against"] is None
    assert [one["case"] for one in DATA["outcomes"]] == [one.case for one in REPORT.outcomes]
    # Failures alone are run again.
    again = [one.get("rerun") for one in DATA["outcomes"]]
    assert [command is not None for command in again] == [
        outcome.status == "failed" for outcome in REPORT.outcomes
    ]
    found = [one["contradiction"] for one in DATA["outcomes"] if one["contradiction"]]
    assert [(one["number"], one["agrees"]) for one in found] == [(8, ["kernel"]), (7, [])]


def test_json_has_tallies_by_operator_and_dtype() -> None:
    rows = {(r["operator"], r["dtype"]): r for r in DATA["by_operator_and_dtype"]}
    row = rows[KL, "f32"]
    assert (row["cases"], row["passed"], row["failed"]) == (4, 2, 2)
    assert (row["ratio"], row["ratio_case"]) == (0.75, WORSE.case)
    assert row["ulp"] == 0.5
    # What was skipped counts as such alone.
    row = rows[f"{TARGET}.community", "bf16"]
    assert [row[key] for key in ("cases", "passed", "skipped", "ulp")] == [0, 0, 1, 0.0]
    blocks = {(r["operator"], r["block"]): r for r in DATA["by_operator_and_block"]}
    assert [blocks[KL, "grid"][key] for key in ("cases", "passed", "ratio")] == [2, 2, 0.75]
    # An infinity is a string that float reads.
    assert DATA["total"]["ulp"] == "inf"


@EVERY
def test_junit_counts_are_those_of_its_elements(report: Report) -> None:
    root = as_xml(report)
    for element in (root, *root.findall("testsuite")):
        assert int(element.get("tests", "")) == len(element.findall(".//testcase"))
        assert int(element.get("failures", "")) == len(element.findall(".//failure"))
        assert int(element.get("skipped", "")) == len(element.findall(".//skipped"))


def test_junit_has_a_testcase_for_each_case_with_what_is_wrong_or_was_skipped() -> None:
    cases = as_xml(REPORT).findall(".//testcase")
    assert sorted(case.get("name", "") for case in cases) == sorted(
        outcome.case for outcome in REPORT.outcomes
    )
    assert cases[0].get("classname") == f"{KL}.grid"
    assert cases[0].get("time") == "0.002000"
    (case,) = (case for case in cases if case.get("name") == OUTSIDE.case)
    failure = case.find("failure")
    assert failure is not None
    assert failure.get("message") == "out: too large"
    assert (failure.text or "").splitlines() == ["out: too large", "also", rerun(REPORT, OUTSIDE)]
    assert [one.get("message") for one in as_xml(REPORT).iter("skipped")] == ["no BF16"]
    suites = [suite.get("name") for suite in as_xml(REPORT).findall("testsuite")]
    assert suites == [KL, f"{TARGET}.community"]
    failure = next(as_xml(hostile()).iter("failure"))
    assert failure.get("message") == clean(hostile().failures[0].problems[0])


def test_junit_says_what_was_judged() -> None:
    suite = as_xml(REPORT).find("testsuite")
    assert suite is not None
    facts = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert facts == {
        "verdict": "Fails: 3 of 6 cases failed",
        "coverage": (
            "judged on Ascend910B: 6 of 6 cases\nskipped 1 case: no BF16\n"
            "not judged, for no statement has them: aclnnPreluBackward\n"
            "npu-7:50051 (cann:0 as Ascend910B1, Ascend910B), profile cann-standard, seed 7, 1.2 s"
        ),
    }
    assert suite.get("timestamp") == "2026-11-20T14:05:57"
