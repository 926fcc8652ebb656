"""Rounds float64 numbers to a dtype: to nearest, ties to even, infinite beyond its largest number.

It uses only powers of two, and shares no code with the rounding of the packages under test.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall_conformance.stating.given import largest

if TYPE_CHECKING:
    from npucall.dtypes import DType
    from npucall_conformance.stating.given import Reals

FRACTIONS = {"FLOAT": (23, -126), "FLOAT16": (10, -14), "BF16": (7, -126), "DOUBLE": (52, -1022)}
"""Bits of the fraction, and the exponent of the smallest normal number."""

_EXPONENT = np.int64(0x7FF << 52)
"""The bits of a float64 that are its exponent."""


def ulp(value: Any, dtype: DType) -> Any:
    """Distance between neighbours of a dtype at a value; 1 for integers."""
    if dtype.name not in FRACTIONS:
        return np.ones(np.shape(value))
    fraction, least = FRACTIONS[dtype.name]
    numbers = np.asarray(value, np.float64)
    power = (numbers.view(np.int64) & _EXPONENT).view(np.float64)  # 2 to the exponent
    power = np.where(np.isfinite(numbers), power, 0.5)
    return np.maximum(power, 2.0**least) * 2.0**-fraction


def nearest(value: Any, *dtypes: DType) -> Reals:
    """The numbers, rounded to each of the dtypes that is a float, one after the other."""
    result: Reals = np.asarray(value, np.float64)
    for dtype, _ in groupby(dtypes):
        if dtype.name in FRACTIONS and dtype.name != "DOUBLE":
            result = _rounded(result, dtype)
    return result


def _rounded(value: Reals, dtype: DType) -> Reals:
    finite = np.isfinite(value)
    every = bool(finite.all())
    numbers = value if every else np.where(finite, value, 0.0)
    unit = ulp(numbers, dtype)
    held = np.rint(numbers / unit) * unit
    size, top = np.abs(held), largest(dtype)
    if size.size and size.max() > top:
        held = np.where(size > top, np.copysign(np.inf, held), held)
    return held if every else np.where(finite, held, value)
