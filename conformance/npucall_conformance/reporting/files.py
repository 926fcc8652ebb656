"""A report as a file: JSON for programs, JUnit XML for CI, and a page.

The object of JSON is stable: keys are added, never changed or taken away. It has::

    format                  "npucall-conformance"
    format_version          2; changes only if a key changes its meaning, or goes
    passed, verdict         the verdict is "conforms"; or "conforms in part", or "fails"
    profile, seed, quick    what was asked
    chosen                  the filters as options; empty for a whole run, the only one whose
                            verdict is of all that the suite judges
    allow_skipped           what was skipped did not lower the verdict
    started, seconds        ISO 8601 in UTC; how long it took
    versions                of npucall, NumPy and the like on this side, by name
    server, against         target, device, soc, product, version, instance, default_variant,
                            variants; against is null without a second server
    unstated                operators that the server lists and nothing judges
    total                   a tally: cases (that ran), passed, failed, skipped, accepted, ulp,
                            ratio, ratio_case, run_ns (the median of its cases)
    by_operator_and_dtype   tallies with operator (variant included) and dtype
    by_operator_and_block   tallies with operator and block
    outcomes                every case in the order of the run: case, operator, variant, block,
                            dtype, status (passed, failed, skipped; accepted: failed, as the
                            baseline says), problems, ulp, ratio, run_ns, total_ns, truth_ns,
                            contradiction (number, topic, sources, agrees, decided, answer; or
                            null), lowers (skipped though it should have been judged), paths (by
                            which it was sent once more), paths_skipped (why, by name), findings
                            (the problems in a form that cases of a cause share), wrong (or null; of
                            the worst output: its name, elements that are wrong, index of the worst,
                            expected, found, inputs there, others, size), and, if it failed, rerun,
                            the command that runs it again
    coverage                judged (cases); lowering (cases that should have been judged, by
                            reason); elsewhere (cases that are for others, by reason); paths (by
                            which calls were sent), paths_missing, and paths_elsewhere (why, by
                            name)
    baseline                vanished (cases that it names and that deviate no more), remarks
    causes                  failures grouped: words, cases (ids), example (the id of one that shows
                            it)

Numbers that JSON does not have are the strings inf, -inf and nan, which Python's ``float`` reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from npucall_conformance.reporting import tables, wording
from npucall_conformance.reporting.causes import Cause, causes
from npucall_conformance.reporting.report import CaseOutcome, Report, Tally
from npucall_conformance.reporting.wording import clean, remarks, rerun, verdict

_PLAIN = (
    "passed", "verdict", "profile", "seed", "quick", "allow_skipped", "started", "seconds",
    "versions", "unstated",
)  # fmt: skip


def as_json(report: Report) -> str:
    """ASCII only, so that no text in it can fail to be written."""
    return json.dumps(_finite(_of_one(report)), indent=1, allow_nan=False) + "\n"


def _of_one(report: Report) -> dict[str, Any]:
    return {
        "format": "npucall-conformance",
        "format_version": 2,
        **{name: getattr(report, name) for name in _PLAIN},
        "chosen": str(report.chosen),
        "server": asdict(report.server),
        "against": asdict(report.against) if report.against else None,
        "total": _tally(report.total()),
        **{
            f"by_operator_and_{name}": [
                {"operator": title, name: value, **_tally(tally)}
                for (title, value), tally in report.tallies("title", name).items()
            ]
            for name in ("dtype", "block")
        },
        "outcomes": [_outcome(report, each) for each in report.outcomes],
        "coverage": asdict(report.coverage()),
        "baseline": asdict(report.known),
        "causes": [_cause(each) for each in causes(report.failures)],
    }


def _tally(tally: Tally) -> dict[str, Any]:
    return {**asdict(tally), "failed": tally.failed}


def _outcome(report: Report, outcome: CaseOutcome) -> dict[str, Any]:
    again = {"rerun": rerun(report, outcome)} if outcome.status == "failed" else {}
    return {**asdict(outcome), **again}


def _cause(cause: Cause) -> dict[str, Any]:
    cases = [outcome.case for outcome in cause.outcomes]
    return {"words": cause.words, "cases": cases, "example": cause.example.case}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_junit(report: Report) -> str:
    """An operator is a testsuite, a case a testcase.

    Testcases are of the class ``operator.block`` and have the case's id as name, so that CI groups
    them by block. A failure's message is its first problem, its text all of them and the command
    that runs the case again. A deviation that the baseline names counts as skipped. The properties
    of each testsuite say what was judged.
    """
    root = _element("testsuites", None, name=f"npucall conform {report.server.target}")
    _count(root, report.outcomes)
    root.set("time", f"{report.seconds:.3f}")
    facts = {"verdict": verdict(report), "coverage": "\n".join(remarks(report))}
    for (title,), outcomes in report.grouped("title").items():
        suite = _element("testsuite", root, name=title)
        if report.started:
            without_zone = report.started.removesuffix("Z").partition("+")[0]  # as JUnit asks
            suite.set("timestamp", clean(without_zone))
        properties = _element("properties", suite)
        for name, value in facts.items():
            _element("property", properties, name=name, value=value)
        _fill(suite, report, outcomes)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _fill(suite: ET.Element, report: Report, outcomes: list[CaseOutcome]) -> None:
    """Adds the testcases of an operator."""
    _count(suite, outcomes)
    suite.set("time", f"{sum(map(_seconds, outcomes)):.6f}")
    for outcome in outcomes:
        kind = f"{outcome.title}.{outcome.block}"
        case = _element("testcase", suite, classname=kind, name=outcome.case)
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


def as_page(report: Report) -> str:
    """One page that needs nothing but itself.

    ``page.html`` is the page, a template of Jinja. All text is escaped on its way in. The page has
    no scripts, and its Content-Security-Policy forbids everything from elsewhere, so a hostile
    server's texts could not load anything either if they were not escaped.
    """
    return _page().render(report=report)


@cache
def _page() -> Any:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, finalize=_harmless,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals |= {"causes": causes, "tables": tables, "wording": wording}
    return environment.get_template("page.html")


def _harmless(value: Any) -> Any:
    return value if isinstance(value, Markup) else wording.clean(str(value))
