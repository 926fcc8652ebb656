"""What a run found: plain data, which the other modules show.

Nothing here knows how cases are made or run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, TypeAlias

from npucall_conformance.cases.select import Selection
from npucall_conformance.judging.check import Sided

Status = Literal["passed", "failed", "skipped", "accepted"]
"""Accepted: it failed as the baseline says."""
Verdict: TypeAlias = Literal["conforms", "conforms in part", "fails"]
NOT_RUN = "no outcome: the run ended before it"


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
    size: int = 1
    """The elements of the output."""


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
    accepted: int
    """Those that failed as the baseline says."""
    ulp: float
    """The worst error in ulp."""
    ratio: float
    """The worst error as a share of its tolerance."""
    ratio_case: str
    run_ns: int
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
class Coverage:
    """What was judged of what should have been. Cases that are for others do not count."""

    judged: int
    """Cases that ran."""
    lowering: Mapping[str, int]
    """How many cases should have run and did not, by reason."""
    elsewhere: Mapping[str, int]
    """How many cases are not for this server, by reason."""
    paths: tuple[str, ...]
    """By which calls were sent."""
    paths_missing: tuple[str, ...]
    """By which they should have been sent."""
    paths_elsewhere: Mapping[str, str]
    """By which they cannot be sent here, and why."""

    @property
    def required(self) -> int:
        """Cases that should have run."""
        return self.judged + sum(self.lowering.values())

    @property
    def complete(self) -> bool:
        """Everything was judged that should have been."""
        return not (self.lowering or self.paths_missing)


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
    """cpu-strict or cann-standard."""
    seed: int
    server: JudgedServer
    against: JudgedServer | None = None
    """The second server, which was judged too."""
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
    required: int = 0
    """How many cases the run had to judge."""
    paths: tuple[str, ...] = ()
    """The paths by which calls must have travelled."""
    allow_skipped: bool = False
    """Skipped cases do not lower the verdict."""
    known: Known = field(default_factory=Known)
    interrupted: bool = False
    """The user ended the run (Ctrl-C): the rest of the cases was not judged."""

    @property
    def quick(self) -> bool:
        """Whether it was a sample."""
        return self.chosen.quick

    @property
    def verdict(self) -> Verdict:
        """The chosen cases fail; conform in part, if something was not judged; or conform."""
        if self.failures or all(o.status == "skipped" for o in self.outcomes):
            return "fails"
        allowed = self.allow_skipped and not self.interrupted
        return "conforms" if allowed or self.coverage().complete else "conforms in part"

    @property
    def passed(self) -> bool:
        """The verdict is ``conforms``."""
        return self.verdict == "conforms"

    def coverage(self) -> Coverage:
        """What was judged of what should have been."""
        ran = [outcome for outcome in self.outcomes if outcome.status != "skipped"]
        lowering = Counter(outcome.reason for outcome in self.outcomes if outcome.lowers)
        if lost := self.required - len(self.outcomes):
            lowering[NOT_RUN] = max(lost, 0)
        elsewhere = Counter(
            o.reason for o in self.outcomes if o.status == "skipped" and not o.lowers
        )
        taken = dict.fromkeys(path for outcome in ran for path in outcome.paths)
        skipped = {path: why for each in ran for path, why in each.paths_skipped.items()}
        return Coverage(
            len(ran), dict(+lowering), dict(elsewhere), tuple(taken),
            tuple(path for path in self.paths if path not in taken | skipped),
            {path: why for path, why in skipped.items() if path not in taken},
        )  # fmt: skip

    @property
    def failures(self) -> list[CaseOutcome]:
        """The outcomes that failed."""
        return [outcome for outcome in self.outcomes if outcome.status == "failed"]

    def total(self) -> Tally:
        """All outcomes together."""
        return _tally(self.outcomes)

    def tallies(self, *names: str) -> dict[tuple[str, ...], Tally]:
        """Tallies by these fields of outcomes, such as title and dtype."""
        return {key: _tally(group) for key, group in self.grouped(*names).items()}

    def grouped(self, *names: str) -> dict[tuple[str, ...], list[CaseOutcome]]:
        """The outcomes by these fields."""
        groups: dict[tuple[str, ...], list[CaseOutcome]] = {}
        for outcome in self.outcomes:
            groups.setdefault(tuple(getattr(outcome, n) for n in names), []).append(outcome)
        return groups

    def contradictions(self) -> list[tuple[CaseOutcome, Sided]]:
        """The outcomes that say with which of several differing sources the server agrees."""
        rows = [(o, o.contradiction) for o in self.outcomes if o.contradiction]

        def row(each: tuple[CaseOutcome, Sided]) -> tuple[bool, int, str]:
            number = str(each[1].number)
            return number[0] == "F", int(number.lstrip("F")), each[0].case

        return sorted(rows, key=row)


def _tally(outcomes: list[CaseOutcome]) -> Tally:
    states = Counter(outcome.status for outcome in outcomes)
    ran = [outcome for outcome in outcomes if outcome.status != "skipped"]

    def worst(name: str) -> tuple[float, str]:
        def size(pair: Any) -> float:
            return math.inf if math.isnan(pair[0]) else pair[0]

        return max(((getattr(o, name), o.case) for o in ran), key=size, default=(0.0, ""))

    times = [outcome.run_ns for outcome in ran if outcome.run_ns]
    return Tally(
        len(ran), states["passed"], states["skipped"], states["accepted"], worst("ulp")[0],
        *worst("ratio"), round(median(times or [0])),
    )  # fmt: skip
