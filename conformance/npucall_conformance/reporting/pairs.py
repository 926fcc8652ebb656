"""Two servers next to each other: the answers of both, and CANN's figures of their errors.

If the truth is of a usual size, errors are relative to it: MARE is the largest of them, MERE their
mean. RMSE is the root of the mean square of the absolute errors of all numbers. Below a threshold,
relative errors say nothing; there the errors above another limit are counted. A device meets a
level if each of its figures is at most so many times the other device's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from npucall.dtypes import DType
from npucall.errors import NpucallError
from npucall_conformance.judging.check import CheckResult, Expectation, arrays_of
from npucall_conformance.judging.tolerance import judge
from npucall_conformance.stating.arguments import Reals, wide
from npucall_conformance.wire import WireAnswer

LEVELS = {
    "L2": (2.0, 1.2, 1.2, 2.0),
    "L1": (5.0, 1.5, 1.5, 2.0),
    "L0": (10.0, 2.0, 2.0, 2.0),
}
"""The largest allowed ratios of MARE, MERE, RMSE and the errors of small values to the other
device's; the strictest level is first."""
_SMALL, _SMALL_ERROR = 2.0**-14, 2.0**-30
"""A value below the first number is small; its error may be up to the second."""
_SHORT_ERROR = 2.0**-16
"""The same of a short float; it is small below half of what its fraction tells apart from 1."""
_BESIDE = 1e-7
"""As the standard says, this is added to the truth before an error is divided by it."""


@dataclass(frozen=True)
class Figures:
    """Errors of some outputs of one device. Figures can be added."""

    count: int = 0
    """The count of numbers that were compared; both sides are finite."""
    usual: int = 0
    """How many of these are of a usual size."""
    mare: float = 0.0
    """Their largest relative error."""
    relative: float = 0.0
    """The sum of their relative errors."""
    squares: float = 0.0
    """The sum of the squares of all absolute errors."""
    small_errors: int = 0
    """The count of small values that are too far off."""

    def __add__(self, other: Figures) -> Figures:
        total = Figures(*map(sum, zip(astuple(self), astuple(other), strict=True)))
        return replace(total, mare=max(self.mare, other.mare))

    @property
    def mere(self) -> float:
        """The mean relative error."""
        return self.relative / self.usual if self.usual else 0.0

    @property
    def rmse(self) -> float:
        """The root of the mean square error."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


def figures(found: Any, value: Reals, dtype: DType) -> Figures:
    """The errors of one output of this dtype, compared with the truth in float64."""
    found = np.asarray(found, np.float64)
    there = np.isfinite(found) & np.isfinite(value)
    found, truth = found[there], value[there]
    threshold, limit = _SMALL, _SMALL_ERROR
    if dtype.is_short:
        threshold, limit = 2.0 ** -(dtype.fraction + 1), _SHORT_ERROR
    with np.errstate(all="ignore"):
        errors = np.abs(found - truth)
        small = np.abs(truth) < threshold
        relative = (errors / (np.abs(truth) + _BESIDE))[~small]
        squares = float((errors**2).sum())
    return Figures(
        errors.size, relative.size, float(relative.max(initial=0.0)), float(relative.sum()),
        squares, int((small & (errors > limit)).sum()),
    )  # fmt: skip


def ratios(one: Figures, other: Figures) -> tuple[float, ...]:
    """MARE, MERE, RMSE and errors of small values of ``one``, divided by those of ``other``."""
    pairs = [(getattr(one, n), getattr(other, n)) for n in ("mare", "mere", "rmse")]
    times = (a / b if b else math.inf if a else 1.0 for a, b in pairs)
    return (*times, one.small_errors / max(other.small_errors, 1))


def level(times: tuple[float, ...]) -> str:
    """The strictest of ``LEVELS`` that these ratios meet; empty if they meet none."""
    for name, limits in LEVELS.items():
        if all(ratio <= limit for ratio, limit in zip(times, limits, strict=True)):
            return name
    return ""


@dataclass(frozen=True)
class ServerColumn:
    """What one of two servers answered to some cases; columns can be added."""

    passed: int = 0
    """How many answers are right, whatever the other server answered."""
    ulp: float = 0.0
    """The worst error."""
    figures: Figures = field(default_factory=Figures)
    """The figures of outputs with fractions."""

    def __add__(self, other: ServerColumn) -> ServerColumn:
        worst = max(math.inf if math.isnan(ulp) else ulp for ulp in (self.ulp, other.ulp))
        return ServerColumn(self.passed + other.passed, worst, self.figures + other.figures)


Columns: TypeAlias = tuple[ServerColumn, ServerColumn]
"""The columns of the judged server, and of the server with which it is compared."""


@dataclass(frozen=True)
class Pair:
    """Two servers over the same cases."""

    cases: int
    sides: Columns

    @property
    def ratios(self) -> tuple[float, ...]:
        """The first server's errors as multiples of the second's."""
        return ratios(self.sides[0].figures, self.sides[1].figures)

    @property
    def level(self) -> str:
        """The level of CANN's standard that these meet."""
        return level(self.ratios)


def paired(columns: Iterable[Columns]) -> Pair:
    """Several cases together."""
    first, second = zip(*columns, strict=True)
    return Pair(len(first), (sum(first, ServerColumn()), sum(second, ServerColumn())))


def column(
    expectation: Expectation, answer: WireAnswer | NpucallError, checked: CheckResult
) -> ServerColumn:
    """The column of one server's answer to a case."""
    passed = int(not checked.problems)
    if isinstance(answer, NpucallError):
        return ServerColumn(passed, checked.ulp)
    arrays, truths = arrays_of(answer), expectation.outputs
    found = (
        figures(arrays[name], truths[name].value, truths[name].dtype)
        for name in checked.verdicts
        if truths[name].dtype.kind == "float"
    )
    return ServerColumn(passed, checked.ulp, sum(found, Figures()))


def differences(
    expectation: Expectation, one: WireAnswer, other: WireAnswer, target: str, profile: str
) -> list[str]:
    """Where a server's answer differs from another's, which is at ``target``."""
    problems = []
    found = arrays_of(one)
    for name, array in arrays_of(other).items():
        beside = replace(expectation.outputs[name], value=wide(array), exact=None)
        verdict = judge(profile, found[name], beside)
        if not verdict.passed:
            problems.append(f"{name} differs from {target}: {verdict.problem}")
    return problems
