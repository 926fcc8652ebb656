"""Whether rounding has a bias, which a tolerance of several ulp hides.

Rounded to nearest, errors have both signs; cut off, they are half an ulp towards zero on average.
What is counted is how many ulp an answer is off the right number, so a right one counts 0 whatever
its own error is: cutting off makes it 1 ulp in half of the places. Of n answers that are right by
accident of an independent last bit the mean strays by 1 / (2 sqrt(n)): 0.03 for 256. A quarter of
an ulp is eight times that, and half of what cutting off makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npucall_client.conformance.stating.rounding import nearest, ulp

if TYPE_CHECKING:
    from npucall_client.conformance.judging.truth import Expected
    from npucall_client.conformance.stating.given import Reals

BIAS = 0.25
"""Mean signed error in ulp that is still no bias."""
_FROM, _DISTINCT = 1_000, 256
"""Elements, and different numbers among them, from which on it is looked for."""
_LOOKED_AT = 1 << 14
_OUTLIER = 2.0
"""An element further off, in ulp, counts as this: it has another cause."""
_CANCELLED = 4.0
"""Where the terms are so many times as large as their sum, an ulp of it says nothing."""
NARROW = ("BF16", "FLOAT16")


def bias(found: Reals, truth: Expected) -> str:
    """What is wrong with the signs of the errors; empty if nothing is, or nothing can be said."""
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
    """Whether an ulp is more than what computing may cost one way.

    A factor 1/N in FLOAT16, as kernels of A2 have it, is off the same way everywhere.
    """
    if truth.dtype.kind != "float" or truth.kernel.kind != "float":
        return False
    if truth.biased:
        return False
    return truth.cost == 0 or truth.dtype.name in NARROW or truth.kernel.name in NARROW
