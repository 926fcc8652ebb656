"""Known deviations of a server, in a file, which a run accepts until they change.

The file is JSON: ``format``, ``version``, ``profile``, ``seed``, ``server`` (who deviated), and
``deviations``, by case: findings, the elements that are wrong, the worst error in ulp, and the
answer where sources contradict each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from npucall_conformance.reporting.report import CaseOutcome, JudgedServer, Known, Report

FORMAT, VERSION = "npucall-conformance-baseline", 2
_NEAR = 0.1
"""Share by which the worst error may differ, for devices whose sums come in any order."""
_SAME = ("soc", "product")
"""What of a server must be as in the file."""


def deviation(outcome: CaseOutcome) -> dict[str, Any]:
    """How a failed case deviates."""
    sided, wrong = outcome.contradiction, outcome.wrong
    return {
        "findings": list(outcome.findings or outcome.problems),
        "answer": sided.answer if sided else "",
        "elements": f"{wrong.output} {wrong.elements}" if wrong else "",
        "ulp": str(outcome.ulp),  # since JSON has no infinity
    }


def _change(known: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """How a deviation differs from the known one; empty if it is the same."""
    for name in ("findings", "answer", "elements"):
        if known[name] != now[name]:
            return f"expected {name} {known[name]}, found {now[name]}"
    worst, found = float(known["ulp"]), float(now["ulp"])
    if worst != found and not abs(worst - found) <= _NEAR * worst:
        return f"expected a worst error of {worst:.3g} ulp, found {found:.3g}"
    return ""


@dataclass
class Baseline:
    """The deviations that are known, and what a run found of them."""

    server: Mapping[str, str]
    deviations: dict[str, dict[str, Any]]
    passing: list[str] = field(default_factory=list)
    """Cases that are named and pass now."""

    def hold(self, outcomes: Iterable[CaseOutcome]) -> Iterator[CaseOutcome]:
        """The outcomes, with known deviations accepted; those that changed say so."""
        for outcome in outcomes:
            known = self.deviations.get(outcome.case)
            if known is not None and outcome.status == "passed":
                self.passing.append(outcome.case)
            if known is None or outcome.status != "failed":
                yield outcome
            elif changed := _change(known, deviation(outcome)):
                problem = f"not as the baseline says: {changed}"
                yield replace(outcome, problems=(*outcome.problems, problem))
            else:
                yield replace(outcome, status="accepted")

    def known(self, report: Report) -> Known:
        """What a report says of it."""
        there = {outcome.case for outcome in report.outcomes}
        gone = [case for case in self.deviations if report.chosen.whole and case not in there]
        remarks = tuple(
            f"the baseline is of {name} {self.server[name]}, this server has {value}"
            for name, value in _identity(report.server).items()
            if value != self.server.get(name, value)
        )
        return Known((*self.passing, *gone), remarks)


def opened(path: Path | None, report: Report, *, write: bool) -> Baseline | None:
    """The baseline of a run, if there is one; one that is to be written may be missing.

    It must be of the same profile, seed and product. Raises ValueError, OSError.
    """
    if path is None:
        if write:
            raise ValueError("write-baseline: expected --baseline FILE, found none")
        return None
    if not path.exists():
        if write:
            return None
        raise ValueError(
            f"baseline: expected a file, found none at {path}; --write-baseline makes it"
        )
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"baseline: expected JSON in {path}, found {error}") from None
    found, wanted = {**saved.get("server", {}), **saved}, _head(report)
    for name, value in {**wanted, **{n: wanted["server"][n] for n in _SAME}}.items():
        if name != "server" and found.get(name) != value:
            raise ValueError(
                f"baseline: expected {name} {value}, found {found.get(name)} in {path}"
            )
    return Baseline(saved["server"], saved["deviations"])


def settle(report: Report, known: Baseline | None, written: Path | None) -> None:
    """Reports the result of a baseline, or writes it again; then all failed cases are accepted."""
    if written is None:
        report.known = known.known(report) if known is not None else report.known
        return
    before = known.deviations if known is not None else {}
    kept = {} if report.chosen.whole else dict(before)  # of cases that were not chosen
    for outcome in report.outcomes:
        kept.pop(outcome.case, None)
        if outcome.status == "failed":
            kept[outcome.case] = deviation(outcome)
        elif outcome.status == "skipped" and outcome.case in before:
            kept[outcome.case] = before[outcome.case]
    saved = {**_head(report), "deviations": {case: kept[case] for case in sorted(kept)}}
    written.write_text(f"{json.dumps(saved, indent=1)}\n", encoding="utf-8")
    report.outcomes[:] = [
        replace(each, status="accepted") if each.status == "failed" else each
        for each in report.outcomes
    ]


def _head(report: Report) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "profile": report.profile,
        "seed": report.seed,
        "server": _identity(report.server),
    }


def _identity(server: JudgedServer) -> dict[str, str]:
    names = ("device", "soc", "product", "version", "default_variant")
    return {name: getattr(server, name) for name in names}
