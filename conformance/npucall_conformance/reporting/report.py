"""What a run found: plain data, which the modules of ``reports`` show.

Stable: fields are added, never changed. Nothing here knows how cases are made or run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal, TypeVar

from npucall_conformance.cases.select import Selection
from npucall_conformance.judging.check import Sided
from npucall_conformance.judging.tolerance import ULP_BINS
from npucall_conformance.reporting.coverage import Coverage, Required, Verdict, coverage
from npucall_conformance.reporting.pairs import Columns, Pair, paired
from npucall_conformance.reporting.patterns import Pattern

Key = TypeVar("Key", bound=Hashable)
Status = Literal["passed", "failed", "skipped", "accepted"]
"""Accepted: it failed as the baseline says."""

__all__ = ["ULP_BINS", "CaseOutcome", "JudgedServer", "Known", "Report", "Sided", "Tally", "Wrong"]


@dataclass(frozen=True)
class Wrong:
    """The worst of a case's outputs whose numbers are wrong."""

    output: str
    elements: str
    """Those that are wrong, as ranges."""
    index: tuple[int, ...]
    """The worst element."""
    expected: float
    found: float
    inputs: Mapping[str, float]
    """By input, the number from which it was computed, if the input broadcasts to the output."""
    others: Mapping[str, str]
    """Attributes, and shapes of the other inputs."""
    patterns: tuple[Pattern, ...]
    """Patterns of all wrong elements; those that say most come first."""


@dataclass(frozen=True)
class CaseOutcome:
    """One case, run or skipped."""

    case: str
    """Its id; ``npucall conform --case ID`` runs it again."""
    operator: str
    variant: str
    block: str
    dtype: str
    """f32, f16, bf16 ..."""
    status: Status
    problems: tuple[str, ...] = ()
    """The problems; or the reason, if it was skipped."""
    ulp: float = 0.0
    """The worst error in ulp of the output; inf if one of NaN, an infinity and a number is in place
    of another."""
    ratio: float = 0.0
    """The worst error as a share of the tolerance; above 1 is outside."""
    worst: str = ""
    """Where: output and index, such as ``out[2, 3]``."""
    histogram: tuple[int, ...] = ()
    """Elements by their error, in the bins whose upper ends are ``ULP_BINS``, and beyond; empty
    where no numbers were compared."""
    run_ns: int = 0
    """The time on the device, as the server says."""
    total_ns: int = 0
    """The time from request to answer."""
    truth_ns: int = 0
    """The time for making the data and the truth."""
    contradiction: Sided | None = None
    lowers: bool = False
    """Skipped, though it should have been judged here: the verdict is lower for it."""
    paths: tuple[str, ...] = ()
    """Paths by which the call was sent once more, and its answer compared."""
    paths_skipped: Mapping[str, str] = field(default_factory=dict)
    """Paths that the call could not take, each with the reason."""
    findings: tuple[str, ...] = ()
    """The problems in a form that is the same for every case with the same cause."""
    wrong: Wrong | None = None
    """The wrong numbers of a case that failed by its numbers."""
    columns: Columns | None = None
    """The answers of two servers, if they are compared."""

    @property
    def title(self) -> str:
        """Operator and variant."""
        return f"{self.operator}.{self.variant}" if self.variant else self.operator

    @property
    def reason(self) -> str:
        """Why it was skipped; of a failure, its first problem."""
        return self.problems[0] if self.problems else "no reason given"


@dataclass(frozen=True)
class JudgedServer:
    """Who was judged."""

    target: str
    device: str
    soc: str
    product: str
    """Short SoC name of its family."""
    version: str
    instance: str
    default_variant: str
    variants: tuple[str, ...]
    """Operators and variants that it can run, such as ``aclnnKlDivTargetBackward.builtin``."""


@dataclass(frozen=True)
class Tally:
    """Several outcomes together."""

    cases: int
    """Those that ran."""
    passed: int
    skipped: int
    ulp: float
    """The worst error in ulp."""
    ulp_case: str
    ratio: float
    """The worst error as a share of its tolerance."""
    ratio_case: str
    histogram: tuple[int, ...]
    accepted: int = 0
    """Those that failed as the baseline says."""
    run_ns: int = 0
    """Median time of a case on the device, as the server says."""

    @property
    def inside(self) -> bool:
        """No error is outside its tolerance."""
        return self.ratio <= 1

    @property
    def failed(self) -> int:
        """Those that ran, did not pass and are not accepted."""
        return self.cases - self.passed - self.accepted


@dataclass(frozen=True)
class Known:
    """The result of a baseline, in addition to the outcomes that were accepted."""

    vanished: tuple[str, ...] = ()
    """Cases that it names and that no longer deviate: they have to be removed from it."""
    remarks: tuple[str, ...] = ()
    """How the server differs from the one that the baseline is of."""


@dataclass
class Report:
    """A run: what it was, and its outcomes in the order in which they came."""

    profile: str
    """cpu-strict, cann-standard or cann-legacy."""
    seed: int
    server: JudgedServer
    against: JudgedServer | None = None
    """The second server, whose outputs were compared with the first's."""
    quick: bool = False
    started: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    """Of npucall, NumPy and the like on this side."""
    outcomes: list[CaseOutcome] = field(default_factory=list)
    unstated: tuple[str, ...] = ()
    """Operators that the server lists, but that no statement judges."""
    chosen: Selection = field(default_factory=Selection)
    """The filters; the verdict is about the cases that they left."""
    required: Required = field(default_factory=Required)
    """What the run had to judge."""
    allow_skipped: bool = False
    """Skipped cases do not lower the verdict."""
    known: Known = field(default_factory=Known)
    interrupted: bool = False
    """The user ended the run (Ctrl-C): the rest of the cases was not judged."""

    @property
    def reports(self) -> tuple[Report]:
        """Itself, as a ``Matrix`` has those of several products."""
        return (self,)

    @property
    def verdict(self) -> Verdict:
        """The chosen cases fail; conform in part, if something was not judged; or conform."""
        if self.failures or all(o.status == "skipped" for o in self.outcomes):
            return "fails"
        allowed = self.allow_skipped and not self.interrupted
        if allowed or self.coverage().complete:
            return "conforms"
        return "conforms in part"

    @property
    def passed(self) -> bool:
        """The verdict is ``conforms``."""
        return self.verdict == "conforms"

    def coverage(self) -> Coverage:
        """What was judged of what should have been."""
        return coverage(self.required, self.outcomes, self.server.product)

    @property
    def failures(self) -> list[CaseOutcome]:
        """The outcomes that failed."""
        return [outcome for outcome in self.outcomes if outcome.status == "failed"]

    def total(self) -> Tally:
        """All outcomes together."""
        return _tally(self.outcomes)

    def by_operator_and_dtype(self) -> dict[tuple[str, str], Tally]:
        """Tallies by (title, dtype)."""
        groups = _grouped(self.outcomes, lambda outcome: (outcome.title, outcome.dtype))
        return {key: _tally(group) for key, group in groups.items()}

    def by_operator_and_block(self) -> dict[tuple[str, str], Tally]:
        """Tallies by (title, block)."""
        groups = _grouped(self.outcomes, lambda outcome: (outcome.title, outcome.block))
        return {key: _tally(group) for key, group in groups.items()}

    def pairs(self) -> dict[tuple[str, str], Pair]:
        """Two servers next to each other by (title, dtype); empty if there is only one."""
        compared = [outcome for outcome in self.outcomes if outcome.columns is not None]
        groups = _grouped(compared, lambda outcome: (outcome.title, outcome.dtype))
        return {key: paired(o.columns for o in group if o.columns) for key, group in groups.items()}

    def contradictions(self) -> list[CaseOutcome]:
        """The outcomes that say with which of several differing sources the server agrees."""
        rows = [(str(o.contradiction.number), o) for o in self.outcomes if o.contradiction]
        rows.sort(key=lambda row: (row[0][0] == "F", int(row[0].lstrip("F")), row[1].case))
        return [outcome for _, outcome in rows]

    def reasons_skipped(self) -> dict[str, int]:
        """How many cases were skipped for which reason."""
        return dict(Counter(o.reason for o in self.outcomes if o.status == "skipped"))


def _grouped(
    outcomes: Iterable[CaseOutcome], key: Callable[[CaseOutcome], Key]
) -> dict[Key, list[CaseOutcome]]:
    groups: dict[Key, list[CaseOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return groups


def _tally(outcomes: list[CaseOutcome]) -> Tally:
    ran = [outcome for outcome in outcomes if outcome.status != "skipped"]
    worst = {
        name: max(
            ((getattr(o, name), o.case) for o in ran),
            key=lambda pair: math.inf if math.isnan(pair[0]) else pair[0], default=(0.0, ""),
        )
        for name in ("ulp", "ratio")
    }  # fmt: skip
    columns = zip(*(o.histogram for o in ran if o.histogram), strict=True)
    return Tally(
        cases=len(ran),
        passed=sum(outcome.status == "passed" for outcome in ran),
        skipped=len(outcomes) - len(ran),
        ulp=worst["ulp"][0],
        ulp_case=worst["ulp"][1],
        ratio=worst["ratio"][0],
        ratio_case=worst["ratio"][1],
        histogram=tuple(map(sum, columns)),
        accepted=sum(outcome.status == "accepted" for outcome in outcomes),
        run_ns=round(median([outcome.run_ns for outcome in ran if outcome.run_ns] or [0])),
    )
