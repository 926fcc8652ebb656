"""How near an answer has to come: the profiles of operators.md 3.2.

cpu-strict     one ulp, and what float32 inside costs the terms: 32 * 2^-24 of their size. With a
               FLOAT16 kernel another ulp for each summed element; where every step rounds to it,
               16 * 2^-11 of the terms' size. A kernel's rounding must show in a wider output.
cann-standard  |a - r| <= atol + rtol * |r| for 99 % of the elements (all of them up to 10,000), and
               none further off than a cap or 32 ulp.
cann-legacy    the mean of |a - r| / (|r| + 1e-7) at most T, its largest at most 10 T.

NaN matches NaN, an infinity one of its sign, zeros match whatever their sign is. Where terms
cancel, the size of the terms stands for |r|.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall_client.conformance.given import largest

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.dtypes import AnyArray, DType
    from npucall_client.conformance.given import Reals
    from npucall_client.conformance.truth import Expected

CPU_STRICT = "cpu-strict"
"""The profile of a CPU reference, which has to be right in everything."""

ULP_BINS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0, 8.0, 16.0, 64.0, 1024.0)
"""Upper ends, in ulp of the output, of the bins in which errors are counted; one more is beyond."""

_FRACTIONS = {"FLOAT": (23, -126), "FLOAT16": (10, -14), "BF16": (7, -126), "DOUBLE": (52, -1022)}
"""Bits of the fraction, and the exponent of the smallest normal number."""
_STANDARD = {
    "FLOAT": (2.0**-10, 2.0**-16, 1e-2),
    "FLOAT16": (2.0**-9, 2.0**-9, 1e-1),
    "BF16": (2.0**-6, 2.0**-6, 1.0),
}
"""rtol, atol, and the cap on the largest absolute error."""
_LEGACY = {"FLOAT": 2.0**-13, "FLOAT16": 2.0**-10, "BF16": 2.0**-7}
"""T, the threshold on the mean relative error."""
_ALL_UP_TO, _SHARE = 10_000, 0.99
_CAP_ULP = 32


@dataclass(frozen=True)
class Verdict:
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


def judge(profile: str, got: AnyArray, truth: Expected) -> Verdict:
    """Judges an output of the right shape and dtype by a profile of ``PROFILES``."""
    with np.errstate(all="ignore"):
        return _judge(PROFILES[profile], got, truth)


def ulp(value: Any, dtype: DType) -> Any:
    """Distance between neighbours of a dtype at a value; 1 for integers."""
    if dtype.name not in _FRACTIONS:
        return np.ones(np.shape(value))
    fraction, least = _FRACTIONS[dtype.name]
    mantissa, exponent = np.frexp(np.asarray(value, np.float64))  # the mantissa is in [0.5, 1)
    exponent = np.where(mantissa == 0, least, exponent - 1)
    return np.ldexp(1.0, np.maximum(exponent, least) - fraction)


@dataclass(frozen=True)
class _Errors:
    """Absolute errors where both sides are numbers, and what they are judged beside."""

    absolute: Reals
    value: Reals
    size: Reals
    ulp: Reals
    """Of the coarser of kernel dtype and output dtype."""
    truth: Expected

    @property
    def scale(self) -> Reals:
        """|r|, or the size of the terms where they cancel."""
        return np.maximum(np.abs(self.value), self.size)

    def row(self, table: dict[str, Any]) -> Any:
        """The row of the coarser dtype in a table by dtype."""
        kernel, output = self.truth.kernel.name, self.truth.dtype.name
        rows = [table[name] for name in (kernel, output) if name in table] or [table["FLOAT"]]
        return max(rows)


def _judge(profile: Callable[[_Errors], tuple[bool, Reals]], got: Any, truth: Expected) -> Verdict:
    found = got.astype(np.float64)
    value, size = truth.value, np.nan_to_num(truth.size, nan=0.0, posinf=0.0)
    own = ulp(value, truth.dtype)
    coarse = own
    if truth.dtype.kind == truth.kernel.kind == "float":
        coarse = np.maximum(own, ulp(value, truth.kernel))
    numbers = np.isfinite(found) & np.isfinite(value)
    apart = np.where(numbers, np.abs(found - value), 0.0)
    errors = _Errors(apart, np.where(numbers, value, 0.0), size, coarse, truth)
    passed, allowed = profile(errors)
    wrong = ~numbers & ~_same_special(found, value, truth, np.maximum(allowed, coarse))
    in_ulp = np.where(wrong, np.inf, apart / np.where(np.isfinite(own), own, 1.0))
    ratio = np.where(wrong, np.inf, np.where(apart == 0, 0.0, apart / allowed))
    if not value.size:
        return Verdict(
            passed=True, problem="", ulp=0.0, ratio=0.0, worst=(), histogram=_count(in_ulp)
        )
    index = tuple(int(i) for i in np.unravel_index(int(ratio.argmax()), value.shape))
    finer = profile is _cpu_strict and _finer_than_kernel(found, truth)
    passed = passed and not wrong.any()
    problem = ""
    if passed and finer:
        problem = (
            f"expected numbers rounded to {truth.kernel}, the kernel's dtype, found finer ones"
        )
    elif not passed:
        count = int(((ratio > 1) | wrong).sum())
        problem = (
            f"element {list(index)} of {list(value.shape)} is {float(found[index])!r}, expected "
            f"{float(value[index])!r}: {in_ulp[index]:.3g} ulp, {ratio[index]:.3g} of the "
            f"tolerance; {count} of {value.size} are outside"
        )
    return Verdict(
        not problem, problem, float(in_ulp.max()), float(ratio.max()), index, _count(in_ulp)
    )  # fmt: skip


def _same_special(found: Reals, value: Reals, truth: Expected, slack: Reals) -> Any:
    """Whether what is no number on one side is the same on the other.

    A number that the output's or the kernel's dtype cannot hold counts as an infinity.
    """
    limit = min(largest(truth.dtype), largest(truth.kernel))
    beyond = np.isinf(found) & (np.abs(value) + slack >= limit) & (found * value > 0)
    return (found == value) | (np.isnan(found) & np.isnan(value)) | beyond


def _finer_than_kernel(found: Reals, truth: Expected) -> bool:
    """Whether an output shows more digits than the kernel's dtype, to which it must be rounded."""
    if truth.kernel.kind != "float" or truth.kernel.itemsize >= truth.dtype.itemsize:
        return False
    rounded = found.astype(truth.kernel.numpy).astype(np.float64)
    return bool((np.isfinite(found) & (rounded != found)).any())


def _count(in_ulp: Reals) -> tuple[int, ...]:
    bins = np.searchsorted(np.array(ULP_BINS), in_ulp.reshape(-1), side="left")
    return tuple(np.bincount(bins, minlength=len(ULP_BINS) + 1).tolist())


def _cpu_strict(errors: _Errors) -> tuple[bool, Reals]:
    truth = errors.truth
    if truth.dtype.kind != "float":
        return bool((errors.absolute == 0).all()), np.full(errors.value.shape, 0.5)
    noise = 2.0**-53 if truth.kernel.name == "DOUBLE" else 2.0**-24
    allowed = errors.ulp + 32 * noise * errors.size
    if truth.kernel.name == "FLOAT16" and truth.summed > 1:
        # An ulp of each summand: at most 2^-10 of it, or the smallest subnormal number.
        allowed = allowed + 2.0**-10 * errors.size + truth.summed * 2.0**-24
    if truth.kernel.name == "FLOAT16" and truth.stepwise:
        allowed = allowed + 16 * 2.0**-11 * errors.size
    return bool((errors.absolute <= allowed).all()), allowed


def _cann_standard(errors: _Errors) -> tuple[bool, Reals]:
    relative, absolute, cap = errors.row(_STANDARD)
    allowed = absolute + relative * errors.scale
    inside = errors.absolute <= allowed
    share = 1.0 if inside.size <= _ALL_UP_TO else _SHARE
    most = np.maximum(cap, _CAP_ULP * errors.ulp)
    capped = inside | (errors.absolute <= most)
    return bool(inside.sum() >= share * inside.size and capped.all()), allowed


def _cann_legacy(errors: _Errors) -> tuple[bool, Reals]:
    threshold = errors.row(_LEGACY)
    beside = errors.scale + 1e-7
    relative = errors.absolute / beside
    passed = not relative.size or (
        relative.mean() <= threshold and relative.max() <= 10 * threshold
    )
    return bool(passed), 10 * threshold * beside


PROFILES: dict[str, Callable[[_Errors], tuple[bool, Reals]]] = {
    CPU_STRICT: _cpu_strict,
    "cann-standard": _cann_standard,
    "cann-legacy": _cann_legacy,
}
