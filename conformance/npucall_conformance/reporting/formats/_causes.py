"""The page's failures: by cause, each with an example and how to run it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall_conformance.reporting.causes import causes
from npucall_conformance.reporting.formats._markup import Markup, join, tag
from npucall_conformance.reporting.formats.text import count, rerun, scope, told

if TYPE_CHECKING:
    from npucall_conformance.reporting.causes import Cause
    from npucall_conformance.reporting.report import Outcome, Report

_SHOWN = 100
"""Causes that are shown; JSON has all."""
_LISTED = 50
"""Cases of a cause that are listed."""


def failures(report: Report) -> Markup:
    """What failed, why, and how to run it again."""
    found = causes(report.failures)
    shown = [_cause(report, cause) for cause in found[:_SHOWN]]
    return join(*shown, _more(len(found) - _SHOWN, "more cause stands", "more causes stand"))


def accepted(report: Report) -> Markup:
    """The deviations that the baseline names."""
    known = [outcome for outcome in report.outcomes if outcome.status == "accepted"]
    rows = [
        tag("li", tag("code", outcome.case), f": {outcome.problems[0]}")
        for outcome in known[:_LISTED]
    ]
    more = _more(len(known) - _LISTED, "more stands", "more stand")
    return join(tag("ul", *rows, class_="cases"), more)


def _cause(report: Report, cause: Cause) -> Markup:
    many = tag("span", f"{count(len(cause.cases), 'case')}: ", class_="bad")
    rest = [case for case in cause.cases if case != cause.example.case]
    listed = [tag("li", tag("code", case)) for case in rest[:_LISTED]]
    more = _more(len(rest) - _LISTED, "more stands", "more stand")
    others = (
        tag("details", tag("summary", f"{len(rest):,} more"), tag("ul", *listed, class_="cases"),
            more)
        if rest
        else None
    )  # fmt: skip
    return tag(
        "div",
        tag("h3", many, cause.words),
        tag("p", scope(cause), class_="soft"),
        _example(report, cause.example),
        others,
        class_="group",
    )


def _example(report: Report, outcome: Outcome) -> Markup:
    """A failing case: its id, what is wrong, the worst element, the command."""
    said = (*outcome.problems, *told(outcome.wrong))
    return tag(
        "article",
        tag("code", outcome.case),
        tag("ul", *(tag("li", each) for each in said)),
        tag("code", rerun(report, outcome), class_="command"),
        class_="failure",
    )


def _more(left: int, one: str, several: str) -> Markup | None:
    if left <= 0:
        return None
    return tag("p", f"{count(left, one, several)} in the JSON report.", class_="note")
