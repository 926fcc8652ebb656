"""Known deviations of a server, in a file, which a run accepts until they change.

The file is JSON: ``format``, ``version``, ``profile``, ``seed``, ``server`` (who deviated), and
``deviations``, by case: findings, the elements that are wrong, the worst of them and its error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from npucall_conformance.reporting.report import CaseOutcome, JudgedServer, Known, Report

FORMAT, VERSION = "npucall-conformance-baseline", 1
_NEAR = 0.1
"""Share by which the worst error may differ, for devices whose sums come in any order."""

_SAME = ("soc", "product")
"""What of a server must be as in the file."""


@dataclass(frozen=True)
class Deviation:
    """How one case deviates."""

    findings: tuple[str, ...]
    """What was wrong, without numbers."""
    output: str = ""
    elements: str = ""
    """Those that were wrong."""
    expected: float = 0.0
    found: float = 0.0
    """The worst of them."""
    ulp: float = 0.0
    """Its error."""
    answer: str = ""
    """Where sources contradict each other: what the server answered."""

    def differs(self, other: Deviation) -> str:
        """How the other one differs; empty if it is the same deviation."""
        for each in ("findings", "answer", "output", "elements"):
            known, now = getattr(self, each), getattr(other, each)
            if known != now:
                return f"expected {each} {_text(known)}, found {_text(now)}"
        if self.ulp != other.ulp and not abs(self.ulp - other.ulp) <= _NEAR * abs(self.ulp):
            return f"expected a worst error of {self.ulp:.3g} ulp, found {other.ulp:.3g}"
        return ""


@dataclass
class Baseline:
    """The deviations that are known, and what a run found of them."""

    profile: str
    seed: int
    server: Mapping[str, str]
    deviations: dict[str, Deviation]
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
            elif changed := known.differs(deviation(outcome)):
                problem = f"not as the baseline says: {changed}"
                yield replace(outcome, problems=(*outcome.problems, problem))
            else:
                yield replace(outcome, status="accepted")

    def known(self, report: Report) -> Known:
        """What a report says of it."""
        gone: list[str] = []
        if report.chosen.whole:
            there = {outcome.case for outcome in report.outcomes}
            gone = [case for case in self.deviations if case not in there]
        return Known((*self.passing, *gone), self._beside(report.server))

    def _beside(self, server: JudgedServer) -> tuple[str, ...]:
        """How the server differs from the file's server, as far as that is allowed."""
        return tuple(
            f"the baseline is of {name} {self.server[name]}, this server has {value}"
            for name, value in _identity(server).items()
            if value != self.server.get(name, value)
        )


def deviation(outcome: CaseOutcome) -> Deviation:
    """How a failed case deviates."""
    findings, wrong = outcome.findings or outcome.problems, outcome.wrong
    answer = outcome.contradiction.answer if outcome.contradiction else ""
    if wrong is None:
        return Deviation(findings, answer=answer)
    numbers = (wrong.output, wrong.elements, wrong.expected, wrong.found, outcome.ulp)
    return Deviation(findings, *numbers, answer)


def opened(path: Path | None, report: Report, *, write: bool) -> Baseline | None:
    """The baseline of a run, if there is one; one that is to be written may be missing.

    Raises ValueError, OSError.
    """
    if path is None:
        if write:
            raise ValueError("write-baseline: expected --baseline FILE, found none")
        return None
    return None if write and not path.exists() else load(path, report)


def settle(report: Report, known: Baseline | None, written: Path | None) -> None:
    """Reports the result of a baseline, or writes it again; then all failed cases are accepted."""
    if written is not None:
        write(written, report, known)
        report.outcomes[:] = [
            replace(each, status="accepted") if each.status == "failed" else each
            for each in report.outcomes
        ]
    elif known is not None:
        report.known = known.known(report)


def load(path: Path, report: Report) -> Baseline:
    """The file, which must be of the same profile, seed and product. Raises ValueError, OSError."""
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"baseline: expected a file, found none at {path}; --write-baseline makes it"
        ) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"baseline: expected JSON in {path}, found {error}") from None
    found = {**saved.get("server", {}), **saved}
    wanted = {"format": FORMAT, "version": VERSION, "profile": report.profile, "seed": report.seed}
    for name, value in (wanted | {n: _identity(report.server)[n] for n in _SAME}).items():
        if found.get(name) != value:
            raise ValueError(
                f"baseline: expected {name} {value}, found {found.get(name)} in {path}"
            )
    deviations = {case: _read(known) for case, known in saved["deviations"].items()}
    return Baseline(saved["profile"], saved["seed"], saved["server"], deviations)


def write(path: Path, report: Report, before: Baseline | None) -> None:
    """Writes the deviations of a run; if it was filtered, those of other cases stay."""
    known = dict(before.deviations) if before is not None and not report.chosen.whole else {}
    for outcome in report.outcomes:
        if outcome.status in ("failed", "accepted"):
            known[outcome.case] = deviation(outcome)
        elif outcome.status == "passed":
            known.pop(outcome.case, None)
        elif before is not None and outcome.case in before.deviations:
            known[outcome.case] = before.deviations[outcome.case]
    saved = {
        "format": FORMAT,
        "version": VERSION,
        "profile": report.profile,
        "seed": report.seed,
        "server": _identity(report.server),
        "deviations": {case: _written(known[case]) for case in sorted(known)},
    }
    text = json.dumps(saved, indent=1, allow_nan=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def _identity(server: JudgedServer) -> dict[str, str]:
    names = ("device", "soc", "product", "version", "default_variant")
    return {name: getattr(server, name) for name in names}


def _written(known: Deviation) -> dict[str, Any]:
    """A deviation in JSON without its defaults; numbers that JSON does not have are strings."""
    usual = {each.name: each.default for each in fields(Deviation)}
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(known).items()
        if value != usual[name]
    }


def _read(saved: Mapping[str, Any]) -> Deviation:
    numbers = {n: float(saved[n]) for n in ("expected", "found", "ulp") if n in saved}
    return Deviation(**{**saved, **numbers, "findings": tuple(saved["findings"])})


def _text(value: Any) -> str:
    return "; ".join(value) if isinstance(value, tuple) else str(value) or "none"
