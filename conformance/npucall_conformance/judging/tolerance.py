"""How near one output came to the truth, by a profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, AnyArray
from npucall_conformance.judging.profiles import PROFILES, Allowed, Errors, errors_of
from npucall_conformance.judging.truth import Expected
from npucall_conformance.stating.arguments import Reals

_JUST_OUTSIDE = 1 + 2.0**-10
"""The smallest share of the tolerance that counts as outside."""
_COMPLEX64 = 8
"""Bytes of the shorter complex dtype."""


@dataclass(frozen=True)
class Judgement:
    """How near one output came."""

    passed: bool
    problem: str
    """What is wrong; empty if it passed."""
    ulp: float
    """The worst error in ulp of the output."""
    ratio: float
    """The worst error as a share of what the profile allows."""
    worst: tuple[int, ...]
    """The element of the worst error."""
    outside: Any = None
    """If it did not pass: a mask of the elements that are outside the tolerance."""


def judge(profile: str, got: AnyArray, truth: Expected) -> Judgement:
    """Judges an output of the right shape and dtype by a profile of ``PROFILES``."""
    with np.errstate(all="ignore"):
        if truth.dtype.kind == "complex":
            return _of_parts(_judge(PROFILES[profile], *_parts(got, truth)))
        if truth.exact is not None:
            same = got.astype(np.float64) == truth.value
            other = np.where(same, np.nan, got)  # float64 cannot tell it from the right number
            got = np.where(got == truth.exact, truth.value, other)
        return _judge(PROFILES[profile], got, truth)


def _parts(got: AnyArray, truth: Expected) -> tuple[AnyArray, Expected]:
    """Complex numbers as real ones: first all real parts, then all imaginary parts.

    Each part has the size of the whole number.
    """
    value = np.asarray(truth.value, np.complex128)
    double = DOUBLE if truth.dtype.itemsize > _COMPLEX64 else FLOAT
    kernel = double if truth.kernel.kind == "complex" else truth.kernel
    return np.stack([got.real, got.imag], -1), replace(
        truth,
        value=np.stack([value.real, value.imag], -1),
        size=np.stack([np.abs(truth.size)] * 2, -1),
        kernel=kernel,
        dtype=double,
    )


def _of_parts(verdict: Judgement) -> Judgement:
    outside = None if verdict.outside is None else verdict.outside.any(-1)
    return replace(verdict, worst=verdict.worst[:-1], outside=outside)


def _judge(profile: Callable[[Errors], Allowed], got: Any, truth: Expected) -> Judgement:
    errors = errors_of(got.astype(np.float64), truth)
    found, value, apart = errors.found, truth.value, errors.absolute
    own, numbers = errors.own, errors.numbers
    allowed = profile(errors)
    wrong = ~numbers & ~allowed.alike
    outside = np.where(numbers, ~allowed.inside, wrong)
    in_ulp = np.where(wrong, np.inf, apart / np.where(np.isfinite(own), own, 1.0))
    ratio = np.where(wrong, np.inf, np.where(apart == 0, 0.0, apart / allowed.most))
    ratio = np.where(outside, np.maximum(ratio, _JUST_OUTSIDE), np.clip(ratio, 0.0, 1.0))
    if not value.size:
        return Judgement(passed=True, problem="", ulp=0.0, ratio=0.0, worst=())
    index = tuple(int(i) for i in np.unravel_index(_worst(outside, ratio), value.shape))
    problem = allowed.problem
    if not allowed.passed or wrong.any():
        problem = (
            f"element {list(index)} of {list(value.shape)} is {float(found[index])!r}, expected "
            f"{float(value[index])!r}: {in_ulp[index]:.3g} ulp, {ratio[index]:.3g} of the "
            f"tolerance; {int(outside.sum())} of {value.size} are outside"
        )
    return Judgement(
        not problem, problem, float(in_ulp.max()), float(ratio.max()), index,
        (ratio > 1) | wrong if problem else None,
    )  # fmt: skip


def _worst(outside: Any, ratio: Reals) -> int:
    """The place of the largest error, of those outside if there are any.

    An element that was rounded the wrong way from between two numbers is outside, although its
    ratio is not above 1.
    """
    return int(np.where(outside, ratio, ratio - 1 if outside.any() else ratio).argmax())
