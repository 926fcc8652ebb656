"""Rounds float64 numbers to a dtype: to nearest, ties to even, infinite beyond its largest number.

It uses only powers of two, and shares no code with the rounding of the packages under test.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, DType
from npucall_conformance.stating.arguments import Reals

_EXPONENT = np.int64(0x7FF << 52)
"""The bits of a float64 that are its exponent."""


def ulp(value: Any, dtype: DType) -> Any:
    """Distance between neighbours of a dtype at a value; 1 for integers."""
    if not dtype.fraction:
        return np.ones(np.shape(value))
    numbers = np.asarray(value, np.float64)
    power = (numbers.view(np.int64) & _EXPONENT).view(np.float64)  # 2 to the exponent
    power = np.where(np.isfinite(numbers), power, 0.5)
    return np.maximum(power, 2.0**dtype.least_exponent) * 2.0**-dtype.fraction


def nearest(value: Any, *dtypes: DType) -> Reals:
    """The numbers, rounded to each of the dtypes that is a float, one after the other."""
    result: Reals = np.asarray(value, np.float64)
    for dtype, _ in groupby(dtypes):
        if dtype.fraction and dtype is not DOUBLE:
            result = _rounded(result, dtype)
    return result


def _rounded(value: Reals, dtype: DType) -> Reals:
    finite = np.isfinite(value)
    every = bool(finite.all())
    numbers = value if every else np.where(finite, value, 0.0)
    unit = ulp(numbers, dtype)
    held = np.rint(numbers / unit) * unit
    size, top = np.abs(held), dtype.largest
    if size.size and size.max() > top:
        held = np.where(size > top, np.copysign(np.inf, held), held)
    return held if every else np.where(finite, held, value)
