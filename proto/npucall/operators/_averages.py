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
from functools import lru_cache, reduce
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.dtypes import AnyArray, Array
from npucall.operators._numerics import row_sums
from npucall.operators._ranges import Ranges, RangeSums, all_summed, summing
from npucall.operators._windows import Windows
from npucall.tensors import Shape

_MOST, _MOST_BACK = 6, 2
"""Blocks that are read as one, forward and backward."""
_PLANS = 4
"""Of a call that are kept: most blocks are of whole planes, and add up the same."""


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

    @property
    def is_one(self) -> bool:
        """Whether there is one window, of all numbers."""
        start, stop = self.windows(np.zeros(1, np.int64))
        return self.count == 1 and bool(start == 0 and stop == self.size)


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
    if all(axis.is_one for axis in axes) and prod(planes.shape[before:]) <= BLOCK:
        return _means(facts, planes, out, axes)

    @lru_cache(_PLANS)
    def planned(*bounds: tuple[int, int]) -> tuple[Sequence[_Part], AnyArray]:
        cells = [slice(*each) for each in bounds]
        ranges = [axis.windows(_places(piece)) for axis, piece in zip(axes, cells, strict=True)]
        return _parts(ranges), _divisors(axes, cells)

    def compute(block: tuple[slice, ...]) -> None:
        parts, divisors = planned(*_bounds(block[before:]))
        total = _total(facts, planes, block[:before], parts)
        _write(out, block, total / divisors.astype(total.dtype))

    facts.each(_blocks(axes, shape, planes.shape, _MOST), compute)
    return out


def _means(facts: Facts, planes: Array, out: AnyArray, axes: Axes) -> AnyArray:
    """Writes the average of each plane."""
    lead, length = planes.shape[: -len(axes)], prod(planes.shape[-len(axes) :])
    divisor = _divisors(axes, [slice(0, 1) for _ in axes]).astype(facts.dtype)

    def compute(some: tuple[slice, ...]) -> None:
        numbers = facts.read(planes, some)
        found = row_sums(numbers.reshape(-1, length)).reshape(numbers.shape[: len(some)])
        out[some] = found.reshape(*found.shape, *divisor.shape) / divisor

    facts.each(cut(lead, shared_block(prod(planes.shape), _MOST) // length), compute)
    return out


def average_back(facts: Facts, gradient: Array, name: str, axes: Axes) -> AnyArray:
    """Writes the gradient of averages, ``gradient``, with respect to the planes."""
    before = len(gradient.shape) - len(axes)
    shape = (*gradient.shape[:before], *(axis.size for axis in axes))
    out = facts.output(name, shape)

    @lru_cache(_PLANS)
    def planned(*bounds: tuple[int, int]) -> Sequence[_Part]:
        cells = [slice(*each) for each in bounds]
        ranges = [axis.numbers(_places(piece)) for axis, piece in zip(axes, cells, strict=True)]
        return _parts(ranges, axes)

    def compute(block: tuple[slice, ...]) -> None:
        parts = planned(*_bounds(block[before:]))
        is_whole = len(parts) == 1 and not any(each.only for each in parts[0].sums)
        place = facts.place(name, block) if is_whole else None
        total = _total(facts, gradient, block[:before], parts, place)
        if place is None:
            _write(out, block, total)

    facts.each(_blocks(axes, shape, gradient.shape, _MOST_BACK), compute)
    return out


def _bounds(cells: Sequence[slice]) -> Sequence[tuple[int, int]]:
    return [(piece.start, piece.stop) for piece in cells]


def _write(out: AnyArray, block: tuple[slice, ...], found: AnyArray) -> None:
    """Writes what was found for a block; along axes of extent 1 it is the same everywhere."""
    shape = tuple(piece.stop - piece.start for piece in block)
    cells = found.shape[1:]
    found = found.reshape(*shape[: len(shape) - len(cells)], *cells)
    out[block] = np.broadcast_to(found, shape)


def _places(piece: slice) -> AnyArray:
    return np.arange(piece.start, piece.stop)


def _blocks(axes: Axes, shape: Shape, read: Shape, most: int) -> Sequence[tuple[slice, ...]]:
    """Blocks of a result, each of which reads no more than a block unless one element does.

    ``most``: see ``shared_block``.
    """
    results, sources = (each[-len(axes) :] for each in (shape, read))
    if 0 in results:
        return cut(shape, 1)
    limit = shared_block(max(prod(shape), prod(read)), most)
    reads = [-(-axis.pairs // count) + 1 for axis, count in zip(axes, results, strict=True)]
    whole = [max(pair) for pair in zip(results, sources, strict=True)]
    for place in reversed(range(len(axes))):
        rest = limit // (prod(reads[:place]) * prod(whole[place + 1 :]))
        if rest < whole[place]:
            fits = (rest - reads[place]) // -(-sources[place] // results[place])
            return cut(shape, max(min(rest, fits), 1) * prod(results[place + 1 :]))
    return cut(shape, limit // prod(whole) * prod(results))


class _Part(NamedTuple):
    """Some cells, of which as many are read as fit a block."""

    cells: Sequence[slice]
    divisors: AnyArray | None
    sums: Sequence[RangeSums]


def _parts(ranges: Sequence[Ranges], before: Axes | None = None) -> Sequence[_Part]:
    """What sums over these ranges add up, and by what they divide it ``before``."""
    reads = [each.reads() for each in ranges]
    parts = []
    for part in cut(tuple(read.stop - read.start for read in reads), BLOCK):
        cells = [
            slice(read.start + piece.start, read.start + piece.stop)
            for read, piece in zip(reads, part, strict=True)
        ]
        sums = [summing(each.within(cell)) for each, cell in zip(ranges, cells, strict=True)]
        parts.append(_Part(cells, None if before is None else _divisors(before, cells), sums))
    nothing = slice(0, 0)
    sums = [summing(each.within(nothing)) for each in ranges]
    return parts or [_Part([nothing for _ in ranges], None, sums)]


def _total(
    facts: Facts,
    source: Array,
    lead: tuple[slice, ...],
    parts: Sequence[_Part],
    place: AnyArray | None = None,
) -> AnyArray:
    """Sums over ranges of planes, or of these divided before. Of extent 1 where all are equal.

    ``place``: where they are written, of one part.
    """
    found, planes = [], prod(piece.stop - piece.start for piece in lead)
    for cells, divisors, sums in parts:
        numbers = facts.read(source, (*lead, *cells))
        numbers = numbers.reshape(planes, *numbers.shape[-len(cells) :])
        if divisors is not None:
            numbers = numbers / divisors.astype(numbers.dtype)
        if any(each.longest == 1 for each in sums):
            numbers = numbers + 0  # what is copied is not -0: sums begin with 0
        found.append(all_summed(numbers, sums, place))
    total: AnyArray = reduce(np.add, found)
    return total


def _divisors(axes: Axes, cells: Sequence[slice]) -> AnyArray:
    of_axes = [axis.divisors(_places(piece)) for axis, piece in zip(axes, cells, strict=True)]
    found: AnyArray = reduce(np.multiply.outer, of_axes)
    return found
