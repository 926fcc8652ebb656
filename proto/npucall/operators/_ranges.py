"""Sums over ranges of the axes of blocks: range by range, or a number of each range at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from npucall.dtypes import AnyArray

_SHORT = 32
"""Numbers that are added in the formula's dtype; longer ranges are added in float64."""
_LONG = 4
"""Times the ranges of an axis: numbers of one that are added up at once, not one of each range."""


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


class RangeSums(NamedTuple):
    """How sums over ranges of an axis are taken: range by range, or number by number."""

    places: int
    longest: int
    only: slice | None
    """The number that each range is."""
    ranges: Sequence[slice]
    """If there are few of them."""
    steps: Sequence[tuple[Any, Any]]
    """Where numbers are added, and which."""


def summing(ranges: Ranges) -> RangeSums:
    starts, stops = ranges
    count, longest = len(starts), int((stops - starts).max())
    if longest == 1 and (starts == starts[0]).all() and (stops == stops[0]).all():
        return RangeSums(count, longest, slice(int(starts[0]), int(stops[0])), (), ())
    if longest > _LONG * count:
        return RangeSums(
            count, longest, None, [slice(*each) for each in zip(*ranges, strict=True)], ()
        )
    return RangeSums(count, longest, None, (), [*nth_numbers(ranges)])


def nth_numbers(ranges: Ranges) -> Iterator[tuple[Any, Any]]:
    """The first numbers of all ranges, the second ones, and so on: which ranges, which numbers."""
    starts, stops = ranges
    longest, steady = int((stops - starts).max()), _run(starts)
    if isinstance(steady, slice) and (stops - starts == longest).all():
        first, stop, each = steady.start, steady.stop, steady.step
        for step in range(longest):
            yield slice(0, len(starts), 1), slice(first + step, stop + step, each)
        return
    for step in range(longest):
        (there,) = np.nonzero(starts + step < stops)
        yield _run(there), _run(starts[there] + step)


def all_summed(
    block: AnyArray, sums: Sequence[RangeSums], place: AnyArray | None = None
) -> AnyArray:
    """Sums along one axis after the other: where they are more than the numbers the last one first.

    So most is done along whole rows.
    """
    places = tuple(each.places for each in sums)
    order = list(enumerate(sums, 1))
    if prod(places) > prod(block.shape[1:]):
        order.reverse()
    for axis, each in order[:-1]:
        block = _summed(block, each, axis)
    axis, last = order[-1]
    if place is None:
        return _summed(block, last, axis)
    return _summed(block, last, axis, place.reshape(-1, *places))


def _summed(block: AnyArray, sums: RangeSums, axis: int, place: AnyArray | None = None) -> AnyArray:
    """Sums over ranges of an axis, which may be written to ``place``."""
    lead: tuple[Any, ...] = (slice(None),) * axis
    if sums.only is not None:
        return block[(*lead, sums.only)] + 0
    shape = (*block.shape[:axis], sums.places, *block.shape[axis + 1 :])
    dtype = _dtype(block, sums.longest)
    total = np.empty(shape, dtype) if place is None or place.dtype != dtype else place
    for number, part in enumerate(sums.ranges):
        block[(*lead, part)].sum(axis, dtype, total[(*lead, number)])
    for to, of in _begun(total, block, sums, axis):
        total[(*lead, to)] += block[(*lead, of)]
    if place is not None and total is not place:
        place[...] = total
    return total


def _begun(
    total: AnyArray, block: AnyArray, sums: RangeSums, axis: int
) -> Sequence[tuple[Any, Any]]:
    """The steps that are left once the first number of each range is there, or 0."""
    if sums.ranges:
        return ()
    to, of = next(iter(sums.steps), (slice(0), slice(0)))
    if not (isinstance(to, slice) and to == slice(0, sums.places, 1)):  # some are of no number
        total[...] = 0
        return sums.steps
    if sums.longest == 1 and not isinstance(of, slice):
        block.take(of, axis, total, "clip")
    else:
        np.add(block[(*(slice(None),) * axis, of)], 0, out=total)
    return sums.steps[1:]


def _run(places: AnyArray) -> slice | AnyArray:
    """Places as a slice, where their distances are equal."""
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    if step > 0 and (np.diff(places) == step).all():
        return slice(int(places[0]), int(places[-1]) + 1, step)
    return places


def _dtype(block: AnyArray, longest: int) -> Any:
    return block.dtype if longest <= _SHORT else np.float64
