"""How near an answer has to come: the profiles [src:precision-standard].

cpu-strict     before rounding, a result may be off the truth by the error that computing in float32
               causes: ``cost`` * 2^-24 of the terms' size. The statement says the cost; it is 0 if
               a single operation computes the result. The result is rounded to nearest even, first
               to the kernel's dtype and then to the output's. Summands that were rounded to FLOAT16
               cost half an ulp each. If every step rounds to FLOAT16, the error may be 16 * 2^-11
               of the terms' size.
cann-standard  |a - r| <= atol + rtol * |r| for 99 % of the elements (all of them up to 10,000), and
               none further off than a cap or 32 ulp; and rounding has no bias.

NaN matches NaN, an infinity matches one of its sign, and zeros match whatever their signs are. If
terms cancel, the size of the terms is used for |r|.

A tolerance of several ulp hides a bias of rounding. If numbers are rounded to nearest, errors have
both signs. If they are cut off, errors are half an ulp towards zero on average. The distance of an
answer from the right number is counted in ulp, so a right answer counts 0, whatever its own error
is. Cutting off makes the distance 1 ulp in half of the places. If the last bits of n answers are
independent, their mean strays by 1 / (2 sqrt(n)): 0.03 for 256 answers. The limit of a quarter of
an ulp is eight times that, and half of the mean that cutting off causes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, DType
from npucall_conformance.judging.truth import Expected
from npucall_conformance.stating.arguments import Reals
from npucall_conformance.stating.rounding import nearest, ulp

CPU_STRICT = "cpu-strict"
"""The profile of a CPU reference, in which everything has to be right."""
CANN_STANDARD = "cann-standard"
"""The profile of devices."""

_ALL_UP_TO, _SHARE = 10_000, 0.99
_CAP_ULP = 32

BIAS = 0.25
"""A mean signed error up to this, in ulp, is no bias."""
_FROM, _DISTINCT = 1_000, 256
"""A bias is looked for from so many elements on, and so many different numbers among them."""
_LOOKED_AT = 1 << 14
_OUTLIER = 2.0
"""An element further off, in ulp, counts as this: it has another cause."""
_CANCELLED = 4.0
"""If the terms are so many times as large as their sum, an ulp of the sum says nothing."""


@dataclass(frozen=True)
class Errors:
    """Absolute errors where both sides are numbers, and the sizes by which they are judged."""

    found: Reals
    absolute: Reals
    value: Reals
    size: Reals
    own: Reals
    """The ulp of the output dtype."""
    ulp: Reals
    """The ulp of the coarser of kernel dtype and output dtype."""
    numbers: Any
    """Where both sides are numbers."""
    truth: Expected

    @property
    def scale(self) -> Reals:
        """|r|, or the size of the terms if they cancel."""
        return np.maximum(np.abs(self.value), self.size)


@dataclass(frozen=True)
class Allowed:
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


def errors_of(found: Reals, truth: Expected) -> Errors:
    """How far off the truth an answer is."""
    value = truth.value
    size, own = np.nan_to_num(truth.size, nan=0.0, posinf=0.0), ulp(value, truth.dtype)
    coarse = own
    if truth.dtype.kind == truth.kernel.kind == "float" and truth.dtype is not truth.kernel:
        coarse = np.maximum(own, ulp(value, truth.kernel))
    numbers = np.isfinite(found) & np.isfinite(value)
    apart = np.where(numbers, np.abs(found - value), 0.0)
    return Errors(found, apart, np.where(numbers, value, 0.0), size, own, coarse, numbers, truth)


def tolerance(profile: str, truth: Expected) -> Reals:
    """How far off the truth each element may be, as an absolute error.

    Infinite where the truth may round to an infinity or to a number; 0 where it is not finite.
    """
    with np.errstate(all="ignore"):
        errors = errors_of(truth.value, truth)
        most, value = PROFILES[profile](errors).most, errors.value
        if profile == CPU_STRICT and truth.dtype.kind == "float":
            low, high = _ends(truth, _cost(errors))
            most = np.maximum(value - low, high - value)
        return np.where(np.isfinite(truth.value), most, 0.0)


def coarser(truth: Expected) -> DType:
    """The coarser of kernel dtype and output dtype, if it is a short float; else FLOAT."""
    short = [dtype for dtype in (truth.kernel, truth.dtype) if dtype.is_short]
    return min(short, key=lambda dtype: dtype.fraction, default=FLOAT)


def standard(dtype: DType) -> tuple[float, float, float]:
    """rtol, atol, and the cap on the largest absolute error."""
    if not dtype.is_short:
        return 2.0**-10, 2.0**-16, 1e-2
    relative = 2.0 ** (1 - dtype.fraction)
    return relative, relative, 1e-1 if dtype.fraction >= FLOAT16.fraction else 1.0


def _alike(errors: Errors, slack: Reals) -> Any:
    """Where NaN or an infinity on one side is the same on the other.

    A number that the output's or the kernel's dtype cannot hold counts as an infinity.
    """
    found, truth = errors.found, errors.truth
    value, slack = truth.value, np.maximum(slack, errors.ulp)
    limit = min(truth.dtype.largest, truth.kernel.largest)
    beyond = np.isinf(found) & (np.abs(value) + slack >= limit) & (found * value > 0)
    return (found == value) | (np.isnan(found) & np.isnan(value)) | beyond


def _cpu_strict(errors: Errors) -> Allowed:
    truth, found = errors.truth, errors.found
    if truth.dtype.kind != "float":
        exact = (found == truth.value) | (np.isnan(found) & np.isnan(truth.value))
        return Allowed(bool(exact.all()), np.full(found.shape, 0.5), exact, exact)
    cost = _cost(errors)
    low, high = _ends(truth, cost)
    inside = ((low <= found) & (found <= high)) | (np.isnan(found) & np.isnan(truth.value))
    problem = ""
    if _finer_than_kernel(found, truth):
        problem = (
            f"expected numbers rounded to {truth.kernel}, the kernel's dtype, found finer ones"
        )
    return Allowed(bool(inside.all()), errors.ulp / 2 + cost, inside, inside, problem)


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


def _cost(errors: Errors) -> Reals:
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


def _cann_standard(errors: Errors) -> Allowed:
    relative, absolute, cap = standard(coarser(errors.truth))
    allowed = absolute + relative * errors.scale
    inside = errors.absolute <= allowed
    share = 1.0 if inside.size <= _ALL_UP_TO else _SHARE
    most = np.maximum(cap, _CAP_ULP * errors.ulp)
    capped = inside | (errors.absolute <= most)
    passed = bool(inside.sum() >= share * inside.size and capped.all())
    return Allowed(
        passed, allowed, inside, _alike(errors, allowed), bias(errors.found, errors.truth)
    )


def bias(found: Reals, truth: Expected) -> str:
    """What is wrong with the signs of the errors; empty if nothing is, or if it cannot be known."""
    if found.size < _FROM or not _can_tell(truth):
        return ""
    step = max(found.size // _LOOKED_AT, 1)
    found, value, size = (
        np.broadcast_to(array, found.shape).reshape(-1)[::step]
        for array in (found, truth.value, truth.size)
    )
    right = nearest(value, truth.kernel, truth.dtype)
    unit = np.maximum(ulp(value, truth.dtype), ulp(value, truth.kernel))
    told = np.isfinite(found) & np.isfinite(right) & (size <= _CANCELLED * np.abs(value))
    if len(np.unique(np.abs(value[told]))) < _DISTINCT:
        return ""
    off = np.clip((found - right)[told] / unit[told], -_OUTLIER, _OUTLIER)
    for mean, one, other in (
        (float((off * np.sign(value[told])).mean()), "away from zero", "towards zero"),
        (float(off.mean()), "up", "down"),
    ):
        if abs(mean) > BIAS:
            way = one if mean > 0 else other
            return (
                f"expected errors of both signs, found numbers rounded {way}: {mean:+.2f} ulp on "
                f"the average of {len(off)} elements, {BIAS} are allowed"
            )
    return ""


def _can_tell(truth: Expected) -> bool:
    """Whether an ulp is more than the error that computing may cause in one direction.

    For example, kernels of A2 have a factor 1/N in FLOAT16, whose error is the same everywhere.
    """
    if truth.dtype.kind != "float" or truth.kernel.kind != "float":
        return False
    if truth.biased:
        return False
    return truth.cost == 0 or truth.dtype.is_short or truth.kernel.is_short


PROFILES: dict[str, Callable[[Errors], Allowed]] = {
    CPU_STRICT: _cpu_strict,
    CANN_STANDARD: _cann_standard,
}


def known_profile(profile: str) -> str:
    """The profile of that name, or none if the name is empty. Raises ValueError for others."""
    if profile and profile not in PROFILES:
        raise ValueError(f"profile: expected one of {', '.join(PROFILES)}, found {profile!r}")
    return profile
