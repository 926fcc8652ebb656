"""A report as JUnit XML, for CI: an operator is a testsuite, a case a testcase.

Testcases are of the class ``operator.block`` and have the case's id as name, so that CI groups them
by block. A failure's message is its first problem, its text all of them and the command that runs
the case again. A deviation that the baseline names counts as skipped. The properties of each
testsuite say what was judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

from npucall_conformance.reporting.report import CaseOutcome, Report
from npucall_conformance.reporting.wording import clean, remarks, rerun, verdict


def render(report: Report) -> str:
    """The text of the file."""
    root = _element("testsuites", None, name=f"npucall conform {report.server.target}")
    _count(root, report.outcomes)
    root.set("time", f"{report.seconds:.3f}")
    for title in dict.fromkeys(outcome.title for outcome in report.outcomes):
        _add_suite(root, report, title)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _add_suite(root: ET.Element, report: Report, title: str) -> None:
    outcomes = [outcome for outcome in report.outcomes if outcome.title == title]
    suite = _element("testsuite", root, name=title)
    _count(suite, outcomes)
    suite.set("time", f"{sum(map(_seconds, outcomes)):.6f}")
    if report.started:
        without_zone = report.started.removesuffix("Z").partition("+")[0]  # as JUnit's schema asks
        suite.set("timestamp", clean(without_zone))
    properties = _element("properties", suite)
    facts = {"verdict": verdict(report), "coverage": "\n".join(remarks(report))}
    for name, value in facts.items():
        _element("property", properties, name=name, value=value)
    for outcome in outcomes:
        case = _element("testcase", suite, classname=f"{title}.{outcome.block}", name=outcome.case)
        case.set("time", f"{_seconds(outcome):.6f}")
        if outcome.status == "failed":
            failure = _element("failure", case, message=outcome.reason, type=outcome.block)
            failure.text = clean("\n".join((*outcome.problems, rerun(report, outcome))))
        elif outcome.status != "passed":
            known = "accepted, as the baseline says: " if outcome.status == "accepted" else ""
            _element("skipped", case, message=f"{known}{outcome.reason}")


def _count(element: ET.Element, outcomes: Iterable[CaseOutcome]) -> None:
    states = [outcome.status for outcome in outcomes]
    element.set("tests", str(len(states)))
    element.set("failures", str(states.count("failed")))
    element.set("errors", "0")
    element.set("skipped", str(states.count("skipped") + states.count("accepted")))


def _element(tag: str, parent: ET.Element | None, **attributes: str) -> ET.Element:
    cleaned = {name: clean(value) for name, value in attributes.items()}
    return ET.Element(tag, cleaned) if parent is None else ET.SubElement(parent, tag, cleaned)


def _seconds(outcome: CaseOutcome) -> float:
    return (outcome.total_ns + outcome.truth_ns) / 1e9
