"""Sums of blocks, in an order that depends only on their shape.

For float32, short runs are added in float32, and their sums in float64. This is many times faster
than adding everything in float64, and nearly as exact: a run loses an ulp or two of its own sum. A
run beyond float32 is infinite.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray
    from npucall.tensors import Shape

_RUN, _ROWS = 256, 64
"""Most elements that are added in float32: of neighbours, several of which go at a time, and of
others, one after the other."""
_WIDE = 512
"""From so many columns on, NumPy's own sum of lines is faster."""


class _Plan(NamedTuple):
    """What follows from the shape of a block and the axes that are summed."""

    result: Shape
    """The block's shape, with extent 1 along these axes."""
    inner: int
    """Neighbouring elements, which belong to one sum, or to one sum each."""
    lines: int
    """In the latter case so many lines of them are added up; else 0."""
    rest: Shape
    """The shape of what is left then, and which of its axes are summed."""
    axes: tuple[int, ...]


def summed(block: AnyArray, axes: tuple[int, ...], wide: Any) -> AnyArray:
    """Sums over these axes, which stay with extent 1; of all but float32 in the dtype ``wide``."""
    plan = _plan(block.shape, axes)
    if block.dtype != np.float32 or not block.flags.c_contiguous or plan.result == block.shape:
        return block.sum(axes, wide, keepdims=True)
    if plan.lines:
        sums = _of_lines(block.reshape(-1, plan.lines, plan.inner))
    else:
        sums = _of_neighbours(block.reshape(-1, plan.inner))
    if plan.axes:
        sums = sums.reshape(plan.rest).sum(plan.axes, np.float64)
    return sums.reshape(plan.result)


@lru_cache(256)
def _plan(shape: Shape, axes: tuple[int, ...]) -> _Plan:
    result = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    kinds = [(axis in axes, extent) for axis, extent in enumerate(shape) if extent != 1]
    groups = groupby(kinds, key=lambda kind: kind[0])
    # Axes that follow each other and are all summed, or all kept, count as one.
    runs = [(prod(extent for _, extent in group), is_summed) for is_summed, group in groups]
    if result == shape:
        return _Plan(result, 0, 0, (), ())
    *outer, (inner, is_summed) = runs
    lines = 0 if is_summed else outer.pop()[0]
    rest = [*outer, *([] if is_summed else [(inner, False)])]
    summed_ones = tuple(number for number, (_, is_summed) in enumerate(rest) if is_summed)
    return _Plan(result, inner, lines, tuple(extent for extent, _ in rest), summed_ones)


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
    sums = partial.astype(np.float64).sum(1)
    return sums if whole == length else sums + np.einsum("ijk->ik", tables[:, whole:])
