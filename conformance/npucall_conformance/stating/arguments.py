"""One call as a statement sees it: float64 numbers, attributes, shapes and dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from npucall.dtypes import BOOL, DOUBLE, FLOAT, INT64, DType
from npucall.tensors import Shape
from npucall_conformance.stating.promotion import common_shape

Reals: TypeAlias = NDArray[np.float64]
"""The arrays in which the truth is computed."""

MEAN = 1
"""The code of ``mean`` in attributes called reduction."""
FLOAT_INSIDE = 32.0
"""The error that computing a formula in float32 may cause, in units of 2^-24 of the terms' size
[src:reference-precision], unless its statement says another."""
BATCHMEAN = 3
OF_PLAIN: Mapping[type, DType] = {bool: BOOL, int: INT64, float: DOUBLE}
"""The dtype of an aclScalar that is given as a plain number: the widest."""
_SCALED = (MEAN, BATCHMEAN, "mean")
"""Reductions that multiply by 1 / a count."""


@dataclass(frozen=True)
class Terms:
    """A statement's answer for one output."""

    value: Reals
    size: Reals | None = None
    """The sum of the terms' absolute values. Results that cancel are judged by it. None: no terms
    cancel, so that it is the absolute value of ``value``."""
    summed: int = 1
    """How many elements were added up for each element of the output."""

    @property
    def sizes(self) -> Reals:
        """``size``, or the absolute value of ``value`` if that is None."""
        return np.abs(self.value) if self.size is None else self.size


@dataclass(frozen=True)
class Arguments:
    """A call's arguments by the names of its parameters; ``given["self"]`` and the like.

    Tensors are float64 arrays of the numbers that were sent, rounded to the kernel's dtype; None
    if absent. An aclScalar has the dtype to which the operator converts it, which is float32 unless
    its statement says another. A C ``float`` is rounded to float32. Other attributes are as sent.
    """

    values: Mapping[str, Any]
    dtypes: Mapping[str, DType]
    kernel: DType = FLOAT
    """Tensors are converted to this dtype. Results are rounded to it before they are summed."""
    stepwise: bool = False
    """Every step of the formula rounds to the kernel's dtype."""
    product: str = "Ascend910B"
    """Short SoC name of the product."""

    def __getitem__(self, name: str) -> Any:
        return member_or_list(self.values, name)

    def shape(self, *names: str) -> Shape:
        """The shape that these tensors broadcast to; absent ones do not count."""
        there = [self.values[name].shape for name in names if self.values[name] is not None]
        shape = common_shape(*there)
        if shape is None:
            raise ValueError(f"{', '.join(names)}: expected shapes that broadcast, found {there}")
        return shape

    def count(self, *names: str) -> int:
        """Elements of the shape that these tensors broadcast to."""
        return prod(self.shape(*names))

    def first(self, *names: str) -> int:
        """First extent of the shape that these tensors broadcast to; 1 for rank 0."""
        return next(iter(self.shape(*names)), 1)

    def mean(self, *names: str, attribute: str = "reduction") -> float:
        """1 / element count of what they broadcast to for the reduction ``mean``, otherwise 1."""
        return 1 / max(self.count(*names), 1) if self[attribute] == MEAN else 1.0

    def share(self, *names: str, attribute: str = "reduction") -> float:
        """The factor of a mean over the shape that they broadcast to; 1 for other reductions.

        It is infinite if there are no elements, so that their mean is NaN.
        """
        if self[attribute] != MEAN:
            return 1.0
        count = self.count(*names)
        return 1 / count if count else np.inf

    def reduced(self, *names: str, attribute: str = "reduction") -> Shape:
        """The shape of a loss: without a reduction the shape that they broadcast to, else ()."""
        return () if self[attribute] else self.shape(*names)

    @property
    def scaled(self) -> bool:
        """Whether results are multiplied by 1 / a count, as in a mean or a batchmean."""
        return self.values.get("reduction") in _SCALED

    @property
    def top(self) -> float:
        """The largest number of the dtype of the steps: beyond it intermediate results overflow."""
        dtype = self.kernel if self.stepwise or self.kernel is DOUBLE else FLOAT
        return dtype.largest


def parameter_of(place: str) -> str:
    """The parameter of a tensor: itself, or of ``tensors[0]`` its list."""
    return place.partition("[")[0]


def member_or_list(values: Mapping[str, Any], name: str) -> Any:
    """A value, or of a list of tensors those that are given, in their order."""
    if name in values:
        return values[name]
    members = [value for place, value in values.items() if parameter_of(place) == name]
    if not members:
        raise KeyError(name)
    return [member for member in members if member is not None]


def wide(numbers: Any) -> Any:
    """The numbers in the dtype in which the truth is computed: float64, or complex128."""
    array = np.asarray(numbers)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
