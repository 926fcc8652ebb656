"""Calls whose numbers and results are written out, since float64 cannot compute the results.

Complex numbers, integers that wrap around or have more digits than a float, conversions beyond a
range, subnormal numbers, and single points at which a formula turns. Block ``written``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npucall.dtypes import DTYPES, FLOAT, AnyArray, DType

WRITTEN_BLOCK = "written"
_SAME = 0.0
"""The result must be the same number, since it is exact or rounded once."""


@dataclass(frozen=True, eq=False)
class WrittenCall:
    """One call and the result in its first output."""

    note: str
    inputs: Mapping[str, AnyArray]
    result: AnyArray
    attributes: Mapping[str, Any] = field(default_factory=dict)
    cost: float = _SAME
    """The error that computing in float32 may cause, in units of 2^-24 of the result's size."""
    open_on_devices: bool = False
    """Only the reference must answer this; devices may answer anything."""


def of(dtype: DType, *values: Any, shape: tuple[int, ...] | None = None) -> AnyArray:
    """An array of these numbers."""
    with np.errstate(all="ignore"):
        array = np.array(values).astype(dtype.numpy)
    return array.reshape(array.shape if shape is None else shape)


def dtype_of(array: AnyArray) -> DType:
    """The dtype of an array."""
    return next((each for each in DTYPES if each.numpy == array.dtype), FLOAT)
