"""How near an answer has to come: the profiles [src:precision-standard].

cpu-strict     before rounding, a result may be off the truth by the error that computing in float32
               causes: ``cost`` * 2^-24 of the terms' size. The statement says the cost; it is 0 if
               a single operation computes the result. The result is rounded to nearest even, first
               to the kernel's dtype and then to the output's. Summands that were rounded to FLOAT16
               cost half an ulp each. If every step rounds to FLOAT16, the error may be 16 * 2^-11
               of the terms' size.
cann-standard  |a - r| <= atol + rtol * |r| for 99 % of the elements (all of them up to 10,000), and
               none further off than a cap or 32 ulp; and rounding has no bias.
cann-legacy    the mean of |a - r| / (|r| + 1e-7) at most T, its largest at most 10 T; no bias.

NaN matches NaN, an infinity matches one of its sign, and zeros match whatever their signs are. If
terms cancel, the size of the terms is used for |r|.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16
from npucall_conformance.judging.bias import bias
from npucall_conformance.stating.rounding import nearest, ulp

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.dtypes import AnyArray, DType
    from npucall_conformance.judging.truth import Expected
    from npucall_conformance.stating.arguments import Reals

CPU_STRICT = "cpu-strict"
"""The profile of a CPU reference, in which everything has to be right."""

ULP_BINS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0)
"""Errors are counted in bins. These are their upper ends in ulp of the output; one more bin has all
larger errors."""

_JUST_OUTSIDE = 1 + 2.0**-10
"""The smallest share of the tolerance that counts as outside."""
_ALL_UP_TO, _SHARE = 10_000, 0.99
_CAP_ULP = 32
_COMPLEX64 = 8
"""Bytes of the shorter complex dtype."""

_FEW = 1 << 12
"""Up to so many elements, sorting them into bins is faster than counting those of each bin."""


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
    histogram: tuple[int, ...]
    """Elements by their error, in the bins of ``ULP_BINS`` and beyond."""
    outside: Any = None
    """If it did not pass: a mask of the elements that are outside the tolerance."""


def judge(profile: str, got: AnyArray, truth: Expected) -> Judgement:
    """Judges an output of the right shape and dtype by a profile of ``PROFILES``."""
    with np.errstate(all="ignore"):
        if truth.dtype.kind == "complex":
            return _of_parts(_judge(PROFILES[profile], *_parts(got, truth)))
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


def is_faint(truth: Expected) -> bool:
    """Whether zeros would pass on a device, since its tolerance is as large as the output."""
    value = truth.value
    if truth.dtype.kind == "complex":
        return not value.any()
    if truth.dtype.kind != "float":
        return not value.any()
    with np.errstate(all="ignore"):
        relative, absolute, _ = _standard(_coarser(truth))
        seen = np.abs(value) > absolute + relative * np.maximum(np.abs(value), truth.size)
        return not (seen | ~np.isfinite(value)).any()


def tolerance(profile: str, truth: Expected) -> Reals:
    """How far off the truth each element may be, as an absolute error.

    Infinite where the truth may round to an infinity or to a number; 0 where it is not finite.
    """
    with np.errstate(all="ignore"):
        size = np.nan_to_num(truth.size, nan=0.0, posinf=0.0)
        finite = np.isfinite(truth.value)
        value = np.where(finite, truth.value, 0.0)
        coarse = ulp(value, truth.dtype)
        if truth.dtype.kind == truth.kernel.kind == "float":
            coarse = np.maximum(coarse, ulp(value, truth.kernel))
        errors = _Errors(value, np.zeros(value.shape), value, size, coarse, truth)
        most = PROFILES[profile](errors).most
        if profile == CPU_STRICT and truth.dtype.kind == "float":
            low, high = _ends(truth, _cost(errors))
            most = np.maximum(value - low, high - value)
        return np.where(finite, most, 0.0)


@dataclass(frozen=True)
class _Errors:
    """Absolute errors where both sides are numbers, and the sizes by which they are judged."""

    found: Reals
    absolute: Reals
    value: Reals
    size: Reals
    ulp: Reals
    """The ulp of the coarser of kernel dtype and output dtype."""
    truth: Expected

    @property
    def scale(self) -> Reals:
        """|r|, or the size of the terms if they cancel."""
        return np.maximum(np.abs(self.value), self.size)


@dataclass(frozen=True)
class _Allowed:
    """What a profile allows for all elements."""

    passed: bool
    """Whether the numbers are near enough."""
    most: Reals
    """How far off each may be."""
    inside: Any
    """Where numbers are no further off."""
    alike: Any
    """Where NaN and infinities are as they should be."""
    problem: str = ""
    """What else is wrong."""


def _judge(profile: Callable[[_Errors], _Allowed], got: Any, truth: Expected) -> Judgement:
    found = got.astype(np.float64)
    value, size = truth.value, np.nan_to_num(truth.size, nan=0.0, posinf=0.0)
    own = ulp(value, truth.dtype)
    coarse = own
    if truth.dtype.kind == truth.kernel.kind == "float":
        coarse = np.maximum(own, ulp(value, truth.kernel))
    numbers = np.isfinite(found) & np.isfinite(value)
    apart = np.where(numbers, np.abs(found - value), 0.0)
    errors = _Errors(found, apart, np.where(numbers, value, 0.0), size, coarse, truth)
    allowed = profile(errors)
    wrong = ~numbers & ~allowed.alike
    outside = np.where(numbers, ~allowed.inside, wrong)
    in_ulp = np.where(wrong, np.inf, apart / np.where(np.isfinite(own), own, 1.0))
    ratio = np.where(wrong, np.inf, np.where(apart == 0, 0.0, apart / allowed.most))
    ratio = np.where(outside, np.maximum(ratio, _JUST_OUTSIDE), np.clip(ratio, 0.0, 1.0))
    if not value.size:
        return Judgement(
            passed=True, problem="", ulp=0.0, ratio=0.0, worst=(), histogram=_count(in_ulp)
        )
    index = tuple(int(i) for i in np.unravel_index(_worst(outside, ratio), value.shape))
    problem = allowed.problem
    if not allowed.passed or wrong.any():
        problem = (
            f"element {list(index)} of {list(value.shape)} is {float(found[index])!r}, expected "
            f"{float(value[index])!r}: {in_ulp[index]:.3g} ulp, {ratio[index]:.3g} of the "
            f"tolerance; {int(outside.sum())} of {value.size} are outside"
        )
    return Judgement(
        not problem, problem, float(in_ulp.max()), float(ratio.max()), index, _count(in_ulp),
        (ratio > 1) | wrong if problem else None,
    )  # fmt: skip


def _worst(outside: Any, ratio: Reals) -> int:
    """The place of the largest error, of those outside if there are any.

    An element that was rounded the wrong way from between two numbers is outside, although its
    ratio is not above 1.
    """
    return int(np.where(outside, ratio, ratio - 1 if outside.any() else ratio).argmax())


def _coarser(truth: Expected) -> DType:
    """The coarser of kernel dtype and output dtype, if it is a short float; else FLOAT."""
    short = [dtype for dtype in (truth.kernel, truth.dtype) if dtype.is_short]
    return min(short, key=lambda dtype: dtype.fraction, default=FLOAT)


def _standard(dtype: DType) -> tuple[float, float, float]:
    """rtol, atol, and the cap on the largest absolute error."""
    if not dtype.is_short:
        return 2.0**-10, 2.0**-16, 1e-2
    relative = 2.0 ** (1 - dtype.fraction)
    return relative, relative, 1e-1 if dtype.fraction >= FLOAT16.fraction else 1.0


def _legacy(dtype: DType) -> float:
    """T, the threshold on the mean relative error."""
    return 2.0**-dtype.fraction if dtype.is_short else 2.0**-13


def _alike(errors: _Errors, slack: Reals) -> Any:
    """Where NaN or an infinity on one side is the same on the other.

    A number that the output's or the kernel's dtype cannot hold counts as an infinity.
    """
    found, truth = errors.found, errors.truth
    value, slack = truth.value, np.maximum(slack, errors.ulp)
    limit = min(truth.dtype.largest, truth.kernel.largest)
    beyond = np.isinf(found) & (np.abs(value) + slack >= limit) & (found * value > 0)
    return (found == value) | (np.isnan(found) & np.isnan(value)) | beyond


def _count(in_ulp: Reals) -> tuple[int, ...]:
    if in_ulp.size < _FEW:
        bins = np.searchsorted(ULP_BINS, in_ulp.reshape(-1), side="left")
        return tuple(np.bincount(bins, minlength=len(ULP_BINS) + 1).tolist())
    up_to = [0, *(int(np.count_nonzero(in_ulp <= end)) for end in ULP_BINS), in_ulp.size]
    return tuple(more - fewer for fewer, more in pairwise(up_to))


def _cpu_strict(errors: _Errors) -> _Allowed:
    truth, found = errors.truth, errors.found
    if truth.dtype.kind != "float":
        exact = (found == truth.value) | (np.isnan(found) & np.isnan(truth.value))
        return _Allowed(bool(exact.all()), np.full(found.shape, 0.5), exact, exact)
    cost = _cost(errors)
    low, high = _ends(truth, cost)
    inside = ((low <= found) & (found <= high)) | (np.isnan(found) & np.isnan(truth.value))
    problem = ""
    if _finer_than_kernel(found, truth):
        problem = (
            f"expected numbers rounded to {truth.kernel}, the kernel's dtype, found finer ones"
        )
    return _Allowed(bool(inside.all()), errors.ulp / 2 + cost, inside, inside, problem)


def _ends(truth: Expected, cost: Reals) -> tuple[Reals, Reals]:
    """The least and the largest right number: those that the cost leads to, rounded.

    If the cost is 0, a result may still be rounded to FLOAT first, in which it is computed.
    """
    way = (truth.kernel, truth.dtype)
    if truth.cost:
        return nearest(truth.value - cost, *way), nearest(truth.value + cost, *way)
    low = high = nearest(truth.value, *way)
    if not truth.wide and truth.kernel.is_short:
        through = nearest(truth.value, FLOAT, *way)
        low, high = np.minimum(low, through), np.maximum(high, through)
    return low, high


def _cost(errors: _Errors) -> Reals:
    """How far off the truth a result may be before it is rounded."""
    truth, size = errors.truth, errors.scale
    unit, least = (2.0**-53, 2.0**-1074) if truth.kernel is DOUBLE else (2.0**-24, 2.0**-149)
    cost = truth.cost * (unit * size + least)
    if truth.kernel is FLOAT16 and truth.summed > 1:
        # Half an ulp of each summand: 2^-11 of it, or half the smallest subnormal number.
        cost = cost + 2.0**-11 * size + truth.summed * 2.0**-25
    if truth.kernel is FLOAT16 and truth.stepwise:
        cost = cost + 16 * 2.0**-11 * size + 2.0**-24
    return cost


def _finer_than_kernel(found: Reals, truth: Expected) -> bool:
    """Whether an output shows more digits than the kernel's dtype, to which it must be rounded."""
    if truth.kernel.kind != "float" or truth.kernel.itemsize >= truth.dtype.itemsize:
        return False
    return bool((np.isfinite(found) & (nearest(found, truth.kernel) != found)).any())


def _cann_standard(errors: _Errors) -> _Allowed:
    relative, absolute, cap = _standard(_coarser(errors.truth))
    allowed = absolute + relative * errors.scale
    inside = errors.absolute <= allowed
    share = 1.0 if inside.size <= _ALL_UP_TO else _SHARE
    most = np.maximum(cap, _CAP_ULP * errors.ulp)
    capped = inside | (errors.absolute <= most)
    passed = bool(inside.sum() >= share * inside.size and capped.all())
    return _Allowed(
        passed, allowed, inside, _alike(errors, allowed), bias(errors.found, errors.truth)
    )


def _cann_legacy(errors: _Errors) -> _Allowed:
    threshold = _legacy(_coarser(errors.truth))
    beside = errors.scale + 1e-7
    relative = errors.absolute / beside
    passed = not relative.size or (
        relative.mean() <= threshold and relative.max() <= 10 * threshold
    )
    allowed = 10 * threshold * beside
    return _Allowed(
        bool(passed), allowed, errors.absolute <= allowed, _alike(errors, allowed),
        bias(errors.found, errors.truth),
    )  # fmt: skip


PROFILES: dict[str, Callable[[_Errors], _Allowed]] = {
    CPU_STRICT: _cpu_strict,
    "cann-standard": _cann_standard,
    "cann-legacy": _cann_legacy,
}
