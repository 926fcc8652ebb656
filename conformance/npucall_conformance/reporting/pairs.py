"""Two servers next to each other: the answers of both, and the ratios of their errors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from npucall.errors import NpucallError
from npucall_conformance.judging.benchmark import Figures, Ratios, figures, ratios
from npucall_conformance.judging.check import arrays_of
from npucall_conformance.judging.tolerance import judge
from npucall_conformance.stating.arguments import wide

if TYPE_CHECKING:
    from collections.abc import Iterable

    from npucall_conformance.judging.check import CheckResult, Expectation
    from npucall_conformance.wire import WireAnswer


@dataclass(frozen=True)
class ServerColumn:
    """What one of two servers answered to a case."""

    passed: bool
    """The answer is right, whatever the other server answered."""
    ulp: float = 0.0
    ratio: float = 0.0
    histogram: tuple[int, ...] = ()
    run_ns: int = 0
    figures: Figures = field(default_factory=Figures)
    """The figures of outputs with fractions."""


Columns: TypeAlias = tuple[ServerColumn, ServerColumn]
"""The columns of the judged server, and of the server with which it is compared."""


@dataclass(frozen=True)
class Side:
    """One server over several cases."""

    passed: int
    ulp: float
    """The worst error."""
    run_ns: int
    """The median."""
    figures: Figures


@dataclass(frozen=True)
class Pair:
    """Two servers over the same cases."""

    cases: int
    sides: tuple[Side, Side]

    @property
    def ratios(self) -> Ratios:
        """The first server's errors as multiples of the second's."""
        return ratios(self.sides[0].figures, self.sides[1].figures)


def paired(columns: Iterable[Columns]) -> Pair:
    """Several cases together."""
    first, second = zip(*columns, strict=True)
    return Pair(len(first), (_side(first), _side(second)))


def _side(columns: tuple[ServerColumn, ...]) -> Side:
    return Side(
        sum(each.passed for each in columns),
        max((math.inf if math.isnan(each.ulp) else each.ulp) for each in columns),
        round(median([each.run_ns for each in columns if each.run_ns] or [0])),
        sum((each.figures for each in columns), Figures()),
    )


def column(
    expectation: Expectation, answer: WireAnswer | NpucallError, checked: CheckResult
) -> ServerColumn:
    """The column of one server's answer to a case."""
    verdicts = checked.verdicts.values()
    bins = zip(*(verdict.histogram for verdict in verdicts), strict=True)
    own = ServerColumn(
        passed=not checked.problems,
        ulp=max((verdict.ulp for verdict in verdicts), default=0.0),
        ratio=max((verdict.ratio for verdict in verdicts), default=0.0),
        histogram=tuple(map(sum, bins)),
    )
    if isinstance(answer, NpucallError):
        return own
    total = Figures()
    for name in checked.verdicts:
        truth = expectation.outputs[name]
        if truth.dtype.kind == "float":
            total += figures(arrays_of(answer)[name], truth.value, truth.dtype)
    return replace(own, run_ns=answer.timings.run_ns, figures=total)


def differences(
    expectation: Expectation, one: WireAnswer, other: WireAnswer, target: str, profile: str
) -> list[str]:
    """Where a server's answer differs from another's, which is at ``target``."""
    problems = []
    found = arrays_of(one)
    for name, array in arrays_of(other).items():
        beside = replace(expectation.outputs[name], value=wide(array))
        verdict = judge(profile, found[name], beside)
        if not verdict.passed:
            problems.append(f"{name} differs from {target}: {verdict.problem}")
    return problems
