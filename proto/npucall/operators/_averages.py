"""Averages over windows of planes, and their gradients.

Windows are ranges of both axes, so that sums are taken along one axis after the other. With the
windows o of the numbers x, which begin and end one after the other, and a divisor for each::

    out[o] = sum of x[i], i in window o, / divisor[o]
    gradient of x[i] = sum of g[o] / divisor[o], o the windows that i is in

The windows that a number is in follow each other too: so the gradient is a sum over ranges again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import DOUBLE, AnyArray, Array
from npucall.operators._windows import Windows
from npucall.tensors import Shape

_SHORT = 32
"""Numbers that are added in the formula's dtype; longer ranges are added in float64."""
_ARRAYS = 3
"""Arrays of float64, as long as what a block reads, that it holds at the most."""


class Ranges(NamedTuple):
    """Windows along one axis, each from a number to before another; and what each divides by."""

    starts: AnyArray
    stops: AnyArray
    divisors: AnyArray

    @classmethod
    def of(cls, axis: Windows, *, padded: bool, clipped: bool) -> Ranges:
        """Those of a pooling: ``padded`` counts cells of the padding, ``clipped`` only those."""
        first = np.arange(axis.windows) * axis.stride - axis.padding
        ends = first + axis.kernel
        starts, stops = np.maximum(first, 0), np.minimum(ends, axis.size)
        if padded:
            counts = (np.minimum(ends, axis.size + axis.padding) if clipped else ends) - first
            return cls(starts, stops, counts)
        return cls(starts, stops, stops - starts)

    @classmethod
    def adaptive(cls, size: int, count: int) -> Ranges:
        """As many as are wanted, as equal as they can be."""
        places = np.arange(count)
        starts, stops = places * size // count, -(-(places + 1) * size // count)
        return cls(starts, stops, stops - starts)

    def back(self, size: int) -> Ranges:
        """The windows that each of so many numbers is in."""
        numbers = np.arange(size)
        first = np.searchsorted(self.stops, numbers, "right")
        last = np.searchsorted(self.starts, numbers, "right")
        return Ranges(first, np.maximum(first, last), np.ones(size, np.int64))

    def longest(self) -> int:
        """Numbers of the longest range."""
        return int((self.stops - self.starts).max(initial=0))

    def some(self, places: slice) -> tuple[Ranges, slice]:
        """Some of the ranges, and what these read, from where they count then."""
        starts, stops = self.starts[places], self.stops[places]
        there = stops > starts
        first = int(starts[there].min(initial=2**62)) if there.any() else 0
        last = int(stops[there].max(initial=first))
        return Ranges(starts - first, stops - first, self.divisors[places]), slice(first, last)


def average(
    facts: Facts, planes: Array, name: str, shape: Shape, axes: tuple[Ranges, Ranges]
) -> AnyArray:
    """Writes the averages of windows."""
    return _summed(facts, planes, name, shape, axes, before=None)


def average_back(
    facts: Facts, gradient: Array, name: str, shape: Shape, axes: tuple[Ranges, Ranges]
) -> AnyArray:
    """Writes the gradient of averages, ``gradient``, with respect to the planes."""
    back = axes[0].back(shape[-2]), axes[1].back(shape[-1])
    return _summed(facts, gradient, name, shape, back, before=axes)


def _summed(
    facts: Facts,
    source: Array,
    name: str,
    shape: Shape,
    axes: tuple[Ranges, Ranges],
    before: tuple[Ranges, Ranges] | None,
) -> AnyArray:
    """Writes sums over ranges, divided; or sums of what is divided before."""
    out, (down, across) = facts.output(name, shape), axes

    def compute(block: tuple[slice, ...]) -> None:
        *lead, rows = block
        own, read = down.some(rows)
        numbers = facts.read(source, (*lead, read))
        numbers = numbers.reshape(-1, *numbers.shape[-2:])
        if before is not None:
            numbers = numbers / _divisors(before, read, numbers.dtype)
        result = _sums(_sums(numbers, own, 1), across, 2)
        if before is None:
            result /= _divisors(axes, rows, result.dtype)
        out[block] = result.reshape(*(piece.stop - piece.start for piece in block), shape[-1])

    facts.each(cut(shape[:-1], _rows(down, source.shape, shape)), compute)
    return out


def _rows(down: Ranges, source: Shape, shape: Shape) -> int:
    """Rows of a block, which reads no more than a block unless one row does."""
    most = BLOCK // max(source[-1], shape[-1], 1)
    if (planes := most // max(source[-2], shape[-2], 1)) > 0:
        return planes * shape[-2]
    own = -(-source[-2] // shape[-2])
    return max((most - down.longest()) // own, 1)


def _divisors(axes: tuple[Ranges, Ranges], rows: slice, dtype: Any) -> AnyArray:
    found: AnyArray = np.multiply.outer(axes[0].divisors[rows], axes[1].divisors).astype(dtype)
    return found


def _sums(block: AnyArray, ranges: Ranges, axis: int) -> AnyArray:
    """Sums over ranges of an axis: range by range, or number by number."""
    shape = (*block.shape[:axis], len(ranges.starts), *block.shape[axis + 1 :])
    longest = ranges.longest()
    lead: tuple[Any, ...] = (slice(None),) * axis
    total = np.zeros(shape, block.dtype if longest <= _SHORT else np.float64)
    if longest > len(ranges.starts):
        for number, (start, stop) in enumerate(zip(ranges.starts, ranges.stops, strict=True)):
            block[(*lead, slice(start, stop))].sum(axis, total.dtype, total[(*lead, number)])
    else:
        for step in range(longest):
            (there,) = np.nonzero(ranges.starts + step < ranges.stops)
            total[(*lead, _run(there))] += block[(*lead, _run(ranges.starts[there] + step))]
    return total.astype(block.dtype, copy=False)


def _run(places: AnyArray) -> slice | AnyArray:
    """Places as a slice, where their distances are equal."""
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step > 0 and (np.diff(places) == step).all():
        return slice(int(places[0]), int(places[-1]) + 1, step)
    return places


def held(axes: tuple[Ranges, Ranges], source: Shape, shape: Shape) -> int:
    """Bytes of what a row of a result reads, where that is more than a block."""
    needed = max(source[-1], shape[-1]) * axes[0].longest()
    return _ARRAYS * DOUBLE.itemsize * needed if needed > BLOCK else 0


def held_back(axes: tuple[Ranges, Ranges], shape: Shape) -> int:
    """The same for the gradient of planes."""
    source = tuple(len(axis.starts) for axis in axes)
    return held((axes[0].back(shape[-2]), axes[1]), source, shape)
