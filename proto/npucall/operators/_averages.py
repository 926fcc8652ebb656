"""Averages over windows of planes, and their gradients.

The windows of a plane are ranges of rows times ranges of columns, and of layers where it has depth,
so that sums are taken along one axis after the other. With a divisor for each window::

    out[o] = sum of x[i], i in window o, / divisor[o]
    gradient of x[i] = sum of g[o] / divisor[o], o the windows that i is in

The windows that a number is in follow each other: so the gradient is a sum over ranges again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, NamedTuple, TypeAlias

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


Axes: TypeAlias = "tuple[PooledAxis, ...]"


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


def cost(planes: int, axes: Axes) -> int:
    """Numbers that are added up for so many planes, or their gradients."""
    longest = [max(axis.size, axis.count) for axis in axes]
    return planes * sum(
        axis.pairs * prod(longest[:place] + longest[place + 1 :]) for place, axis in enumerate(axes)
    )


def average(facts: Facts, planes: Array, name: str, axes: Axes) -> AnyArray:
    """Writes the averages of windows."""
    before = len(planes.shape) - len(axes)
    shape = (*planes.shape[:before], *(axis.count for axis in axes))
    out = facts.output(name, shape)

    def compute(block: tuple[slice, ...]) -> None:
        cells = block[before:]
        ranges = [axis.windows(_places(piece)) for axis, piece in zip(axes, cells, strict=True)]
        total = _total(facts, planes, block[:before], ranges, None)
        total /= _divisors(axes, cells, total.dtype)
        out[block] = total.reshape([piece.stop - piece.start for piece in block])

    facts.each(cut(shape, _limit(axes, shape[before:], planes.shape[before:])), compute)
    return out


def average_back(facts: Facts, gradient: Array, name: str, axes: Axes) -> AnyArray:
    """Writes the gradient of averages, ``gradient``, with respect to the planes."""
    before = len(gradient.shape) - len(axes)
    shape = (*gradient.shape[:before], *(axis.size for axis in axes))
    out = facts.output(name, shape)

    def compute(block: tuple[slice, ...]) -> None:
        cells = block[before:]
        ranges = [axis.numbers(_places(piece)) for axis, piece in zip(axes, cells, strict=True)]
        total = _total(facts, gradient, block[:before], ranges, axes)
        out[block] = total.reshape([piece.stop - piece.start for piece in block])

    facts.each(cut(shape, _limit(axes, shape[before:], gradient.shape[before:])), compute)
    return out


def _places(piece: slice) -> AnyArray:
    return np.arange(piece.start, piece.stop)


def _limit(axes: Axes, results: Shape, sources: Shape) -> int:
    """Elements of a block, which reads no more than that many unless one element does."""
    if 0 in results:
        return 1
    reads = [-(-axis.pairs // count) + 1 for axis, count in zip(axes, results, strict=True)]
    whole = [max(pair) for pair in zip(results, sources, strict=True)]
    for place in reversed(range(len(axes))):
        most = BLOCK // (prod(reads[:place]) * prod(whole[place + 1 :]))
        if most < whole[place]:
            fits = (most - reads[place]) // -(-sources[place] // results[place])
            return max(min(most, fits), 1) * prod(results[place + 1 :])
    return BLOCK // prod(whole) * prod(results)


def _total(
    facts: Facts,
    source: Array,
    lead: tuple[slice, ...],
    ranges: Sequence[Ranges],
    before: Axes | None,
) -> AnyArray:
    """Sums over ranges of planes, or of these divided ``before``; in parts that fit a block."""
    reads = [each.reads() for each in ranges]
    found = []
    for part in cut(tuple(read.stop - read.start for read in reads), BLOCK):
        cells = [
            slice(read.start + piece.start, read.start + piece.stop)
            for read, piece in zip(reads, part, strict=True)
        ]
        numbers = facts.read(source, (*lead, *cells))
        numbers = numbers.reshape(-1, *numbers.shape[-len(cells) :])
        if before is not None:
            numbers = numbers / _divisors(before, cells, numbers.dtype)
        for axis, (each, cell) in enumerate(zip(ranges, cells, strict=True), 1):
            numbers = _sums(numbers, each.within(cell), axis)
        found.append(numbers)
    if not found:
        counts = [piece.stop - piece.start for piece in lead]
        return np.zeros((*counts, *(len(each.starts) for each in ranges)))
    total: AnyArray = reduce(np.add, found)
    return total


def _divisors(axes: Axes, cells: Sequence[slice], dtype: Any) -> AnyArray:
    of_axes = [axis.divisors(_places(piece)) for axis, piece in zip(axes, cells, strict=True)]
    found: AnyArray = reduce(np.multiply.outer, of_axes).astype(dtype)
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
