"""Layouts of a tensor in memory, and arrays put into storage of such a layout."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import AnyArray, DType
from npucall.tensors import Buffer, Shape, TensorSpec

SENTINEL = b"\xa5"
"""The bytes that fill storage which no element owns, unless a case has bytes of its own."""


@dataclass(frozen=True)
class Arrangement:
    """How a tensor lies in its storage, whatever its shape is; the simplest is dense."""

    name: str = "drawn"
    places: tuple[int, ...] = ()
    """By dimension: those with larger numbers vary faster; of equal ones the later does."""
    gaps: tuple[int, ...] = ()
    """By dimension, from the last one on: elements that are left out after its elements."""
    expanded: tuple[bool, ...] = ()
    """By dimension: whether it has stride 0. Only inputs may have such dimensions."""
    strides: tuple[int, ...] = ()
    """By dimension: the stride itself, so that elements may share memory. Only for inputs."""
    offset: int = 0
    behind: int = 0
    """Elements of storage after the view."""
    step: int = 1
    """The stride of the dimension that varies fastest."""

    def fits(self, shape: Shape, *, output: bool) -> bool:
        """Whether a tensor of that shape may have it; outputs must not share memory."""
        return not (output and (any(self.expanded) or any(self.strides)) and shape)

    @lru_cache(maxsize=4096)  # noqa: B019  # most calls have one of a few
    def spec(self, dtype: DType, shape: Shape) -> TensorSpec:
        """The tensor in this layout."""
        strides = self._strides(shape)
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if prod(shape) else -1
        storage = (self.offset + reach + 1 + self.behind,)
        spec = TensorSpec(dtype, shape, strides, self.offset, storage)
        return spec.dense() if spec.row_major else spec

    def _strides(self, shape: Shape) -> Shape:
        rank = len(shape)
        if any(self.strides):
            return tuple(_at(self.strides, axis) for axis in range(rank))
        if not prod(shape):
            return row_major(shape)
        strides, step = [0] * rank, self.step
        for axis in sorted(range(rank), key=lambda axis: (_at(self.places, axis), axis))[::-1]:
            if not _at(self.expanded, axis):
                strides[axis] = step
                step = step * shape[axis] + _at(self.gaps, rank - 1 - axis)
        return tuple(strides)


def _at(numbers: tuple[Any, ...], axis: int) -> Any:
    return numbers[axis] if axis < len(numbers) else 0


DENSE = Arrangement("dense")
TRANSPOSED = Arrangement("transposed", places=(8, 7, 6, 5, 4, 3, 2, 1), behind=5)
STEP = Arrangement("step", step=2, behind=5)
OFFSET = Arrangement("offset", offset=3, behind=5)
GAPS = Arrangement("gaps", gaps=(3,), behind=5)
EXPANDED = Arrangement("expanded", expanded=(True,), behind=5)
TAIL = Arrangement("tail", behind=5)
"""In as much storage as TRANSPOSED, so that only strides differ between the two."""
ARRANGEMENTS = (TRANSPOSED, STEP, OFFSET, GAPS, EXPANDED, TAIL)


def row_major(shape: Shape) -> Shape:
    """Strides, in elements, of a tensor without gaps: each is the size of the axes after it."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def view(spec: TensorSpec, storage: Buffer) -> AnyArray:
    """The elements of a tensor in its storage, without a copy. NumPy checks that they lie in it."""
    size = spec.dtype.itemsize
    if not prod(spec.shape):
        return np.empty(spec.shape, spec.dtype.numpy)
    steps = tuple(stride * size for stride in spec.strides)
    return np.ndarray(spec.shape, spec.dtype.numpy, storage, spec.offset * size, steps)


def blank(spec: TensorSpec, fill: bytes = SENTINEL) -> bytearray:
    """Storage of a tensor, filled with repeated bytes."""
    return bytearray(fill * (spec.storage_bytes // len(fill) + 1))[: spec.storage_bytes]


def put(array: AnyArray, spec: TensorSpec, fill: bytes = SENTINEL) -> tuple[bytearray, AnyArray]:
    """Storage with the array's elements in it and ``fill`` repeated elsewhere, and a view of it.

    If elements share memory, the view has the element that was written last.
    """
    storage = blank(spec, fill)
    seen = view(spec, storage)
    if spec.elements:
        seen[...] = array
    return storage, seen


def gaps(spec: TensorSpec, storage: bytes | bytearray | memoryview) -> AnyArray:
    """The bytes of storage that no element of the view owns."""
    free = np.ones(spec.storage_elements, bool)
    if spec.elements:
        steps = tuple(0 if n == 1 else s for n, s in zip(spec.shape, spec.strides, strict=True))
        np.lib.stride_tricks.as_strided(free[spec.offset :], spec.shape, steps)[...] = False
    return np.frombuffer(storage, np.uint8).reshape(-1, spec.dtype.itemsize)[free]
