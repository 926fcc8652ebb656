"""Sums of blocks, in an order that depends on their shape alone.

Of float32 short runs are added up in float32, and their sums in float64: many times faster than all
in float64, and nearly as good, since what a run loses is an ulp or two of its own sum; one beyond
float32 is infinite.
"""

from __future__ import annotations

from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray
    from npucall.tensors import Shape

_RUN, _ROWS = 256, 32
"""Most elements that are added in float32: of neighbours, several of which go at a time, and of
others, one after the other."""
_WIDE = 512
"""Columns from which on NumPy's own sum of lines is the faster one."""


def summed(block: AnyArray, axes: tuple[int, ...], wide: Any) -> AnyArray:
    """Sums over these axes, which stay with extent 1; of all but float32 in the dtype ``wide``."""
    result = tuple(1 if axis in axes else extent for axis, extent in enumerate(block.shape))
    if block.dtype != np.float32 or not block.flags.c_contiguous or result == block.shape:
        return block.sum(axes, wide, keepdims=True)
    *outer, (inner, is_summed) = _runs(block.shape, axes)
    if is_summed:
        sums = _of_neighbours(block.reshape(-1, inner))
    else:
        lines, _ = outer.pop()
        sums = _of_lines(block.reshape(-1, lines, inner))
        outer.append((inner, False))
    rest = tuple(number for number, (_, is_summed) in enumerate(outer) if is_summed)
    return sums.reshape([extent for extent, _ in outer]).sum(rest, np.float64).reshape(result)


def _runs(shape: Shape, axes: tuple[int, ...]) -> list[tuple[int, bool]]:
    """Extents of axes that follow each other and are all summed, or all kept, and which of both."""
    kinds = [(axis in axes, extent) for axis, extent in enumerate(shape) if extent != 1]
    groups = groupby(kinds, key=lambda kind: kind[0])
    return [(prod(extent for _, extent in group), is_summed) for is_summed, group in groups]


def _of_neighbours(rows: AnyArray) -> AnyArray:
    """The sum of each row."""
    count, length = rows.shape
    if length <= _RUN:
        return np.einsum("ij->i", rows)
    whole = length - length % _RUN
    sums = np.einsum("ijk->ij", rows[:, :whole].reshape(count, -1, _RUN)).sum(1, np.float64)
    return sums if whole == length else sums + np.einsum("ij->i", rows[:, whole:])


def _of_lines(tables: AnyArray) -> AnyArray:
    """The sums of each table's columns."""
    count, length, width = tables.shape
    if length <= _ROWS:
        return np.einsum("ijk->ik", tables)
    whole = length - length % _ROWS
    groups = tables[:, :whole].reshape(count, -1, _ROWS, width)
    partial = np.add.reduce(groups, 2) if width >= _WIDE else np.einsum("igjk->igk", groups)
    sums = partial.sum(1, np.float64)
    return sums if whole == length else sums + np.einsum("ijk->ik", tables[:, whole:])
