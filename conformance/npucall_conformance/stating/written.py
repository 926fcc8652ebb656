"""Results that are written out, where drawn numbers and formulas in float64 say nothing.

Such as complex numbers, integers that wrap around, and what must be exact to the last digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npucall.dtypes import DTYPES, FLOAT, AnyArray, DType


@dataclass(frozen=True, eq=False)
class WrittenCall:
    """One call and its results."""

    note: str
    inputs: Mapping[str, AnyArray]
    results: tuple[AnyArray, ...]
    """By output, in their order."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    cost: float = 0.0
    """The error that computing in float32 may cause, in units of 2^-24 of the result's size. 0: the
    results must be the same numbers, since they are exact or rounded once."""
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


def alone(note: str, one: Any, result: Any, cost: float = 0.0, **attributes: Any) -> WrittenCall:
    """A call of an operator of one tensor."""
    return WrittenCall(note, {"self": one}, (result,), attributes, cost)


def pair(note: str, one: Any, other: Any, result: Any, **attributes: Any) -> WrittenCall:
    """A call of an operator of two tensors."""
    return WrittenCall(note, {"self": one, "other": other}, (result,), attributes)
