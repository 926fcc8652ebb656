"""What a formula is handed, and what becomes of its results.

Formulas see arrays, never blocks: inputs come to them rounded to the kernel dtype, widened, aligned
and contiguous, since NumPy's functions may round strided arrays otherwise than contiguous ones.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from npucall.compute.conversions import convert, converted
from npucall.dtypes import BOOL

if TYPE_CHECKING:
    from types import EllipsisType

    from npucall.compute.layouts import Layout
    from npucall.dtypes import AnyArray
    from npucall.tensors import Shape

Index: TypeAlias = "tuple[slice, ...] | EllipsisType"
"""A block of a shape: a slice for each axis, or all of it."""


class Operand:
    """An input that a formula reads: its layout, and the dtypes that its blocks pass through."""

    def __init__(self, name: str, layout: Layout, through: tuple[np.dtype[Any], ...]) -> None:
        self.name, self.layout = name, layout
        self._is_truth = layout.dtype == BOOL.numpy
        self._through = _changes((layout.dtype, *through))
        self.is_plain = not (self._is_truth or self._through)
        """Whether the formula takes its elements as they come."""

    def block(self, array: AnyArray, index: Index) -> AnyArray:
        """A block of the input's array, as the formula takes it: a view if it is fit for that."""
        block = array if index is ... else array[within(array.shape, index)]
        if self._is_truth:
            block = block.view(np.uint8) != 0  # any byte but 0 is true
        for dtype in self._through:
            block = converted(block, dtype)
        return block if is_fit(block) else block.copy()


def is_fit(array: AnyArray) -> bool:
    """Whether NumPy's functions can be left to it: aligned and contiguous."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def store(target: AnyArray, result: AnyArray, kernel: np.dtype[Any]) -> None:
    """Writes a result, rounded to the kernel dtype and then to the target's."""
    convert(target, result if target.dtype == kernel else rounded(result, kernel))


def rounded(result: AnyArray, kernel: np.dtype[Any]) -> AnyArray:
    """A result in the kernel dtype."""
    return result if result.dtype == kernel else converted(result, kernel)


def within(shape: Shape, index: Index) -> Index:
    """A block's index for an array that may have extent 1 where the blocks' shape has more."""
    if index is ... or 1 not in shape:
        return index
    pieces = zip(shape, index, strict=False)  # an array of rows has one axis more
    return tuple(slice(None) if extent == 1 else piece for extent, piece in pieces)


def _changes(dtypes: tuple[np.dtype[Any], ...]) -> tuple[np.dtype[Any], ...]:
    """Those that differ from the one before."""
    return tuple(after for before, after in pairwise(dtypes) if after != before)
