"""Whether rounding has a bias, which a tolerance of several ulp hides.

If numbers are rounded to nearest, errors have both signs. If they are cut off, errors are half an
ulp towards zero on average. The distance of an answer from the right number is counted in ulp, so a
right answer counts 0, whatever its own error is. Cutting off makes the distance 1 ulp in half of
the places. If the last bits of n answers are independent, their mean strays by 1 / (2 sqrt(n)):
0.03 for 256 answers. The limit of a quarter of an ulp is eight times that, and half of the mean
that cutting off causes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npucall_conformance.stating.rounding import nearest, ulp

if TYPE_CHECKING:
    from npucall_conformance.judging.truth import Expected
    from npucall_conformance.stating.arguments import Reals

BIAS = 0.25
"""A mean signed error up to this, in ulp, is no bias."""
_FROM, _DISTINCT = 1_000, 256
"""A bias is looked for from so many elements on, and so many different numbers among them."""
_LOOKED_AT = 1 << 14
_OUTLIER = 2.0
"""An element further off, in ulp, counts as this: it has another cause."""
_CANCELLED = 4.0
"""If the terms are so many times as large as their sum, an ulp of the sum says nothing."""


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
