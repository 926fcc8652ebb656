"""Averages over windows of planes, and their gradients.

The windows of a plane are ranges of rows times ranges of columns, so that sums are taken along one
axis after the other. With a divisor for each window::

    out[o] = sum of x[i], i in window o, / divisor[o]
    gradient of x[i] = sum of g[o] / divisor[o], o the windows that i is in

The windows that a number is in follow each other: so the gradient is a sum over ranges again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import AnyArray, Array
from npucall.operators._windows import Windows
from npucall.tensors import Shape

_SHORT = 32
"""Numbers that are added in the formula's dtype; longer ranges are added in float64."""


class Ranges(NamedTuple):
    """What some places of a result add up along an axis: from a number to before another."""

    starts: AnyArray
    stops: AnyArray

    def reads(self) -> slice:
        """All that any of them adds up."""
        there = self.stops > self.starts
        first = int(self.starts[there].min()) if there.any() else 0
        return slice(first, int(self.stops[there].max(initial=first)))

    def within(self, part: slice) -> Ranges:
        """What they have of a part, counted from where it begins."""
        count = part.stop - part.start
        return Ranges(*(np.clip(ends - part.start, 0, count) for ends in self))


@dataclass(frozen=True)
class PooledAxis:
    """The windows along one axis; ``pairs``: how many numbers all of them have together."""

    size: int
    count: int
    pairs: int
    windows: Callable[[AnyArray], Ranges]
    """For some windows, their numbers."""
    numbers: Callable[[AnyArray], Ranges]
    """For some numbers, the windows that they are in."""
    divisors: Callable[[AnyArray], AnyArray]
    """For some windows, what each divides by."""


def pooling(axis: Windows, *, padded: bool, clipped: bool) -> PooledAxis:
    """Windows of a pooling: ``padded`` counts cells of the padding, ``clipped`` only those."""
    size, kernel, stride, padding, _, count = axis

    def windows(places: AnyArray) -> Ranges:
        first = places * stride - padding
        return Ranges(np.maximum(first, 0), np.minimum(first + kernel, size))

    def numbers(places: AnyArray) -> Ranges:
        stops = np.minimum((places + padding) // stride + 1, count)
        starts = -((kernel - 1 - padding - places) // stride)
        return Ranges(np.clip(starts, 0, stops), stops)

    def divisors(places: AnyArray) -> AnyArray:
        if not padded:
            return np.subtract(*reversed(windows(places)))
        first = places * stride - padding
        return (np.minimum(first + kernel, size + padding) if clipped else first + kernel) - first

    return PooledAxis(size, count, count * min(kernel, size), windows, numbers, divisors)


def adaptive(size: int, count: int) -> PooledAxis:
    """As many windows as are wanted, as equal as they can be."""

    def windows(places: AnyArray) -> Ranges:
        return Ranges(places * size // count, -(-(places + 1) * size // count))

    def numbers(places: AnyArray) -> Ranges:
        return Ranges(places * count // size, -(-(places + 1) * count // size))

    def divisors(places: AnyArray) -> AnyArray:
        return np.subtract(*reversed(windows(places)))

    return PooledAxis(size, count, size + count, windows, numbers, divisors)


def cost(planes: int, axes: tuple[PooledAxis, PooledAxis]) -> int:
    """Numbers that are added up for so many planes, or their gradients."""
    down, across = axes
    rows, columns = max(down.size, down.count), max(across.size, across.count)
    return planes * (down.pairs * columns + rows * across.pairs)


def average(
    facts: Facts, planes: Array, name: str, axes: tuple[PooledAxis, PooledAxis]
) -> AnyArray:
    """Writes the averages of windows."""
    shape = (*planes.shape[:-2], *(axis.count for axis in axes))
    out = facts.output(name, shape)

    def compute(block: tuple[slice, ...]) -> None:
        *lead, rows, columns = block
        ranges = axes[0].windows(_places(rows)), axes[1].windows(_places(columns))
        total = _total(facts, planes, (*lead,), ranges, None)
        total /= _divisors(axes, rows, columns, total.dtype)
        out[block] = total.reshape([piece.stop - piece.start for piece in block])

    facts.each(cut(shape, _limit(axes, shape[-2:], planes.shape[-2:])), compute)
    return out


def average_back(
    facts: Facts, gradient: Array, name: str, axes: tuple[PooledAxis, PooledAxis]
) -> AnyArray:
    """Writes the gradient of averages, ``gradient``, with respect to the planes."""
    shape = (*gradient.shape[:-2], *(axis.size for axis in axes))
    out = facts.output(name, shape)

    def compute(block: tuple[slice, ...]) -> None:
        *lead, rows, columns = block
        ranges = axes[0].numbers(_places(rows)), axes[1].numbers(_places(columns))
        total = _total(facts, gradient, (*lead,), ranges, axes)
        out[block] = total.reshape([piece.stop - piece.start for piece in block])

    facts.each(cut(shape, _limit(axes, shape[-2:], gradient.shape[-2:])), compute)
    return out


def _places(piece: slice) -> AnyArray:
    return np.arange(piece.start, piece.stop)


def _limit(axes: tuple[PooledAxis, PooledAxis], results: Shape, sources: Shape) -> int:
    """Elements of a block, which reads no more than that many unless one element does."""
    if 0 in results:
        return 1
    (rows, columns), (rows_read, columns_read) = results, sources
    tall, wide = (-(-axis.pairs // count) + 1 for axis, count in zip(axes, results, strict=True))
    if (most := BLOCK // tall) < max(columns, columns_read):
        return max(min(most, (most - wide) // -(-columns_read // columns)), 1)
    most = BLOCK // max(columns, columns_read)
    if most < max(rows, rows_read):
        return max(min(most, (most - tall) // -(-rows_read // rows)), 1) * columns
    return most // max(rows, rows_read) * rows * columns


def _total(
    facts: Facts,
    source: Array,
    lead: tuple[slice, ...],
    ranges: tuple[Ranges, Ranges],
    before: tuple[PooledAxis, PooledAxis] | None,
) -> AnyArray:
    """Sums over ranges of planes, or of these divided ``before``; in parts that fit a block."""
    down, across = ranges
    rows, columns = down.reads(), across.reads()
    found = []
    for part in cut((rows.stop - rows.start, columns.stop - columns.start), BLOCK):
        y, x = (
            slice(axis.start + piece.start, axis.start + piece.stop)
            for axis, piece in zip((rows, columns), part, strict=True)
        )
        numbers = facts.read(source, (*lead, y, x))
        numbers = numbers.reshape(-1, *numbers.shape[-2:])
        if before is not None:
            numbers = numbers / _divisors(before, y, x, numbers.dtype)
        found.append(_sums(_sums(numbers, down.within(y), 1), across.within(x), 2))
    if not found:
        counts = [piece.stop - piece.start for piece in lead]
        return np.zeros((*counts, len(down.starts), len(across.starts)))
    total: AnyArray = reduce(np.add, found)
    return total


def _divisors(
    axes: tuple[PooledAxis, PooledAxis], rows: slice, columns: slice, dtype: Any
) -> AnyArray:
    of_axes = axes[0].divisors(_places(rows)), axes[1].divisors(_places(columns))
    found: AnyArray = np.multiply.outer(*of_axes).astype(dtype)
    return found


def _sums(block: AnyArray, ranges: Ranges, axis: int) -> AnyArray:
    """Sums over ranges of an axis: range by range, or number by number."""
    shape = (*block.shape[:axis], len(ranges.starts), *block.shape[axis + 1 :])
    longest = int((ranges.stops - ranges.starts).max())
    lead: tuple[Any, ...] = (slice(None),) * axis
    total = np.zeros(shape, block.dtype if longest <= _SHORT else np.float64)
    if longest > len(ranges.starts):
        for number, (start, stop) in enumerate(zip(*ranges, strict=True)):
            block[(*lead, slice(start, stop))].sum(axis, total.dtype, total[(*lead, number)])
    else:
        for step in range(longest):
            (there,) = np.nonzero(ranges.starts + step < ranges.stops)
            total[(*lead, _run(there))] += block[(*lead, _run(ranges.starts[there] + step))]
    return total


def _run(places: AnyArray) -> slice | AnyArray:
    """Places as a slice, where their distances are equal."""
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step > 0 and (np.diff(places) == step).all():
        return slice(int(places[0]), int(places[-1]) + 1, step)
    return places
