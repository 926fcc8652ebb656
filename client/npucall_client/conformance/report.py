"""What a run found: plain data, which the modules of ``reports`` show.

Stable: fields are added, never changed. Nothing here knows how cases are made or run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from npucall_client.conformance.tolerance import ULP_BINS

Key = TypeVar("Key", bound=Hashable)
Status = Literal["passed", "failed", "skipped"]

__all__ = ["ULP_BINS", "Outcome", "Report", "Server", "Sided", "Tally"]


@dataclass(frozen=True)
class Sided:
    """Which sources of a contradiction the server agrees with."""

    number: int | str
    """Row of operators.md 1.4, or, as "F3", of forwards.md 5."""
    topic: str
    sources: tuple[str, ...]
    agrees: tuple[str, ...]
    """Those of the sources whose expectation the answer meets."""
    decided: str
    """The source that the reference follows."""
    answer: str
    """What the server answered."""


@dataclass(frozen=True)
class Outcome:
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
    """What was wrong; why, if it was skipped."""
    ulp: float = 0.0
    """The worst error in ulp of the output; inf where one of NaN, an infinity and a number stands
    in place of another."""
    ratio: float = 0.0
    """The worst error as a share of the tolerance; above 1 is outside."""
    worst: str = ""
    """Where: output and index, such as ``out[2, 3]``."""
    histogram: tuple[int, ...] = ()
    """Elements by their error, in the bins whose upper ends are ``ULP_BINS``, and beyond; empty
    where no numbers were compared."""
    run_ns: int = 0
    """On the device, as the server says."""
    total_ns: int = 0
    """From request to answer."""
    truth_ns: int = 0
    """Making the data and the truth."""
    contradiction: Sided | None = None

    @property
    def title(self) -> str:
        """Operator and variant."""
        return f"{self.operator}.{self.variant}" if self.variant else self.operator


@dataclass(frozen=True)
class Server:
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

    @property
    def failed(self) -> int:
        """Those that ran and did not pass."""
        return self.cases - self.passed


@dataclass
class Report:
    """A run: what it was, and its outcomes in the order in which they came."""

    profile: str
    """cpu-strict, cann-standard or cann-legacy."""
    seed: int
    server: Server
    against: Server | None = None
    """The second server, whose outputs were compared with the first's."""
    quick: bool = False
    started: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    """Of npucall, NumPy and the like on this side."""
    outcomes: list[Outcome] = field(default_factory=list)
    unstated: tuple[str, ...] = ()
    """Operators that the server lists, but that no statement judges."""

    @property
    def passed(self) -> bool:
        """Nothing failed, and something ran."""
        return not self.failures and any(o.status == "passed" for o in self.outcomes)

    @property
    def failures(self) -> list[Outcome]:
        """The outcomes that failed."""
        return [outcome for outcome in self.outcomes if outcome.status == "failed"]

    def total(self) -> Tally:
        """All outcomes together."""
        return _tally(self.outcomes)

    def by_operator_and_dtype(self) -> dict[tuple[str, str], Tally]:
        """Tallies by (title, dtype)."""
        return _grouped(self.outcomes, lambda outcome: (outcome.title, outcome.dtype))

    def by_operator_and_block(self) -> dict[tuple[str, str], Tally]:
        """Tallies by (title, block)."""
        return _grouped(self.outcomes, lambda outcome: (outcome.title, outcome.block))

    def contradictions(self) -> list[Outcome]:
        """The outcomes that say which of sources that differ the server agrees with."""
        rows = [
            (str(outcome.contradiction.number), outcome)
            for outcome in self.outcomes
            if outcome.contradiction is not None
        ]
        rows.sort(key=lambda row: (row[0][0] == "F", int(row[0].lstrip("F")), row[1].case))
        return [outcome for _, outcome in rows]

    def reasons_skipped(self) -> dict[str, int]:
        """How many cases were skipped for which reason."""
        counts: dict[str, int] = {}
        for outcome in self.outcomes:
            if outcome.status == "skipped":
                reason = outcome.problems[0] if outcome.problems else ""
                counts[reason] = counts.get(reason, 0) + 1
        return counts


def _grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], Key]) -> dict[Key, Tally]:
    groups: dict[Key, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(key(outcome), []).append(outcome)
    return {name: _tally(group) for name, group in groups.items()}


def _tally(outcomes: list[Outcome]) -> Tally:
    ran = [outcome for outcome in outcomes if outcome.status != "skipped"]
    by_ulp = max(ran, key=lambda outcome: _rank(outcome.ulp), default=None)
    by_ratio = max(ran, key=lambda outcome: _rank(outcome.ratio), default=None)
    columns = zip(*(o.histogram for o in ran if o.histogram), strict=True)
    return Tally(
        cases=len(ran),
        passed=sum(outcome.status == "passed" for outcome in ran),
        skipped=len(outcomes) - len(ran),
        ulp=by_ulp.ulp if by_ulp else 0.0,
        ulp_case=by_ulp.case if by_ulp else "",
        ratio=by_ratio.ratio if by_ratio else 0.0,
        ratio_case=by_ratio.case if by_ratio else "",
        histogram=tuple(map(sum, columns)),
    )


def _rank(value: float) -> float:
    return math.inf if math.isnan(value) else value
