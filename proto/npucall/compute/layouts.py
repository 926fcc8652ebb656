"""Where the elements of an array lie in memory, and how a call's work wants to see them.

All of it follows from the call, so it is found once, before any memory exists.
"""

from __future__ import annotations

from itertools import compress
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from npucall.dtypes import FLOAT8_E5M2
from npucall.tensors import Buffer, Shape, TensorSpec, row_major

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray


class Layout(NamedTuple):
    """An array without its memory; strides and offset count bytes."""

    dtype: np.dtype[Any]
    shape: Shape
    strides: Shape
    offset: int = 0

    @classmethod
    def of_spec(cls, spec: TensorSpec) -> Layout:
        """A tensor's view of its storage."""
        offset = spec.offset * spec.dtype.itemsize
        return cls(spec.dtype.numpy, spec.shape, spec.byte_strides, offset)

    @classmethod
    def of_array(cls, array: AnyArray) -> Layout:
        """An array that exists."""
        return cls(array.dtype, array.shape, array.strides)

    def over(self, storage: Buffer) -> AnyArray:
        """The array in a storage, not copied; writable if the storage is."""
        if 0 in self.shape:  # nothing is read, and strides may be more than NumPy can hold
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, storage, self.offset, self.strides)

    def seen(self, array: AnyArray) -> AnyArray:
        """Another array's memory in this layout, which was made from that array's own."""
        if 0 in self.shape:
            return array.reshape(self.shape)
        if self.dtype == FLOAT8_E5M2.numpy:  # as_strided cannot name it
            return as_strided(array.view(np.uint8), self.shape, self.strides).view(self.dtype)
        return as_strided(array, self.shape, self.strides)

    @property
    def dense(self) -> bool:
        """Whether the elements follow each other without gaps, in row-major order."""
        moves = [extent > 1 for extent in self.shape]
        steps = (step * self.dtype.itemsize for step in row_major(self.shape))
        return 0 in self.shape or all(
            found == expected
            for found, expected in compress(zip(self.strides, steps, strict=True), moves)
        )

    def flat(self) -> Layout:
        """One axis instead of all; of a dense layout only."""
        return self._replace(shape=(prod(self.shape),), strides=(self.dtype.itemsize,))

    def of_rank(self, rank: int) -> Layout:
        """With leading axes of extent 1 up to a rank."""
        more = rank - len(self.shape)
        return self._replace(shape=(1,) * more + self.shape, strides=(0,) * more + self.strides)

    def rows(self, dim: int) -> Layout:
        """With a dimension as last axis; rank 0 becomes rank 1."""
        if not self.shape:
            return self.of_rank(1)
        return self._replace(shape=_last(self.shape, dim), strides=_last(self.strides, dim))

    def halves(self) -> Layout:
        """With a first axis of extent 2 over both halves of the last one."""
        (*shape, extent), (*_, step) = self.shape, self.strides
        half = extent // 2
        return self._replace(shape=(2, *shape, half), strides=(step * half, *self.strides))


def _last(values: Shape, dim: int) -> Shape:
    rest = list(values)
    moved = rest.pop(dim)
    return (*rest, moved)
