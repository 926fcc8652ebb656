"""Layouts of a tensor in memory, and arrays put into storage of such a layout."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from math import prod
from typing import Protocol

import numpy as np

from npucall.dtypes import AnyArray, DType
from npucall.tensors import Buffer, Shape, TensorSpec

SENTINEL = b"\xa5"
"""The bytes that fill storage which no element owns, unless a case has bytes of its own."""
_BEFORE, _BEHIND = 3, 5
"""Elements before a view with an offset, and after every view that is not dense."""


class StorageLayout(Protocol):
    """How a tensor lies in its storage, whatever its shape is."""

    def fits(self, shape: Shape, *, output: bool) -> bool:
        """Whether a tensor of that shape can differ from dense in this way."""

    def spec(self, dtype: DType, shape: Shape) -> TensorSpec:
        """The tensor in this layout."""


class Arrangement(Enum):
    """How a tensor lies in its storage."""

    DENSE = "dense"
    TRANSPOSED = "transposed"
    STEP = "step"
    OFFSET = "offset"
    GAPS = "gaps"
    EXPANDED = "expanded"
    TAIL = "tail"
    """Row by row, in as much storage as TRANSPOSED, so that only strides differ between the two."""

    def fits(self, shape: Shape, *, output: bool) -> bool:
        """Whether a tensor of that shape can differ from dense in this way."""
        if self is Arrangement.TRANSPOSED:
            return sum(extent > 1 for extent in shape) > 1
        if self is Arrangement.EXPANDED:
            return not output and bool(shape) and shape[0] > 1
        if self is Arrangement.GAPS:
            return len(shape) > 1
        return self is Arrangement.OFFSET or bool(shape)

    @lru_cache(maxsize=4096)  # there are only a few arrangements
    def spec(self, dtype: DType, shape: Shape) -> TensorSpec:
        """The tensor in this layout; unless it is dense, storage continues after the view."""
        if self is Arrangement.DENSE:
            return TensorSpec(dtype, shape)
        offset = _BEFORE if self is Arrangement.OFFSET else 0
        strides = _strides(self, shape)
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) if prod(shape) else 0
        return TensorSpec(dtype, shape, strides, offset, (offset + reach + 1 + _BEHIND,))


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


def _strides(layout: Arrangement, shape: Shape) -> Shape:
    if not shape:
        return ()
    if layout is Arrangement.TRANSPOSED:
        return tuple(reversed(row_major(tuple(reversed(shape)))))
    if layout is Arrangement.STEP:
        return tuple(2 * stride for stride in row_major(shape))
    if layout is Arrangement.GAPS:
        return row_major((*shape[:-1], shape[-1] + _BEFORE))
    if layout is Arrangement.EXPANDED:
        return (0, *row_major(shape)[1:])
    return row_major(shape)
