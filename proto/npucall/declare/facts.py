"""What a formula is told of the call besides its arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.dtypes import AnyArray
    from npucall.tensors import Shape


@dataclass(eq=False, slots=True)
class Facts:
    """Facts of the whole call for a formula that sees only a block of it. Nobody changes it."""

    shapes: Mapping[str, Shape]
    """Shapes of the tensors as passed, and those that the rules found."""
    dtype: np.dtype[Any]
    """What the formula computes in; factors come in it."""
    out: AnyArray | None = None
    """Where the result will stand, if it can be computed there: the last step of a formula, a ufunc
    over all of a block, may take it as its ``out``."""

    def with_out(self, out: AnyArray) -> Facts:
        """The same facts, and the place of a block's result."""
        return Facts(self.shapes, self.dtype, out)

    def count(self, name: str) -> int:
        """Number of elements of a shape."""
        return prod(self.shapes[name])

    def first(self, name: str) -> int:
        """First extent of a shape; 1 for rank 0."""
        return next(iter(self.shapes[name]), 1)

    def reciprocal(self, divisor: int) -> np.floating[Any]:
        """``1 / divisor`` in double, rounded to float32, then to the formula's dtype.

        For a divisor of 0, which only a call without elements has, 1.
        """
        return _reciprocal(self.dtype, divisor)


@lru_cache(1024)
def _reciprocal(dtype: np.dtype[Any], divisor: int) -> np.floating[Any]:
    factor = np.float64(1 / (divisor or 1))
    return factor if dtype == np.float64 else dtype.type(np.float32(factor))
