"""The inputs that a formula gets, and where its results go.

Formulas see arrays, never blocks: inputs come to them rounded to the kernel dtype, widened, aligned
and contiguous, since NumPy's functions may round strided arrays differently from contiguous ones.
"""

from __future__ import annotations

from itertools import pairwise
from threading import Lock
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from npucall.compute.conversions import convert, converted
from npucall.compute.layouts import Layout
from npucall.dtypes import BOOL, AnyArray
from npucall.errors import InternalError
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
        return self.taken(array if index is ... else array[within(array.shape, index)])

    def taken(self, block: AnyArray) -> AnyArray:
        """Elements of the input's array, as the formula takes them."""
        if self._is_truth:
            block = block.view(np.uint8) != 0  # any byte but 0 is true
        for dtype in self._through:
            block = converted(block, dtype)
        return block if is_fit(block) else _fit_copy(block)


class InputReader:
    """An input of a formula that gets everything at once, and takes blocks of it."""

    def __init__(self, operand: Operand, array: AnyArray) -> None:
        self._operand, self._array = operand, array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, index: Any) -> AnyArray:
        return self._operand.taken(np.asarray(self._array[index]))

    def __array__(self, dtype: Any = None, **how: Any) -> AnyArray:
        del how
        return np.asarray(self[...], dtype)


class Writing:
    """An output of such a formula, which writes blocks of it."""

    def __init__(self, target: AnyArray, kernel: np.dtype[Any]) -> None:
        self._target, self._kernel = target, kernel
        self.shape = target.shape
        """What the call gives it, where the rules let it choose."""
        self._missing = target.size
        self._counting = Lock()

    def __setitem__(self, index: Any, result: AnyArray) -> None:
        place = self._target[... if index == () else index]
        store(place, result, self._kernel)
        self._count(place)

    def place(self, index: Any, dtype: np.dtype[Any]) -> AnyArray | None:
        """Where a block stands, if a ufunc can write its result of that dtype there, once."""
        place = self._target[... if index == () else index]
        if not (place.dtype == self._kernel == dtype and is_fit(place)):
            return None
        self._count(place)
        return place

    def _count(self, place: AnyArray) -> None:
        with self._counting:  # several threads may write
            self._missing -= place.size

    def end(self, name: str) -> None:
        """Raises InternalError unless everything was written: the memory may hold old bytes."""
        if self._missing:
            raise InternalError(
                f"{name}: expected every element to be written once, found {self._missing} missing"
            )


def is_fit(array: AnyArray) -> bool:
    """Whether NumPy's functions can use it directly: aligned and contiguous."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def _fit_copy(array: AnyArray) -> AnyArray:
    """A contiguous copy. Of rows along another than the last axis in two steps.

    First in memory order, then transposed within the cache: NumPy alone takes five times as long.
    """
    kept = array.copy("K")
    if kept.flags.c_contiguous:
        return kept
    copy = np.empty(kept.shape, kept.dtype)
    np.copyto(copy.T, kept.T)
    return copy


def store(target: AnyArray, result: AnyArray, kernel: np.dtype[Any]) -> None:
    """Writes a result, rounded to the kernel dtype and then to the target's."""
    if result.dtype == target.dtype == kernel:
        target[...] = result
        return
    convert(target, result if target.dtype == kernel else rounded(result, kernel))


def rounded(result: AnyArray, kernel: np.dtype[Any]) -> AnyArray:
    """A result in the kernel dtype."""
    return result if result.dtype == kernel else converted(result, kernel)


def within(shape: Shape, index: Index) -> Any:
    """A block's index for an array that may have extent 1 where the blocks' shape has more.

    And further axes before, all of which belong to the block.
    """
    if index is ...:
        return index
    lead = len(shape) - len(index)
    if 1 in shape:
        pieces = zip(shape[lead:], index, strict=True)
        index = tuple(slice(None) if extent == 1 else piece for extent, piece in pieces)
    return (..., *index) if lead else index


def _changes(dtypes: tuple[np.dtype[Any], ...]) -> tuple[np.dtype[Any], ...]:
    """Those that differ from the one before."""
    return tuple(after for before, after in pairwise(dtypes) if after != before)
