"""Axes that get other extents: each new cell is a weighted sum of cells of the axis before it.

Along one axis, with few cells i in each sum::

    y[o] = sum of w[o, i] x[i]

and along several axes this for one after the other. The gradient of that has the same weights::

    dx[i] = sum of w[o, i] dy[o]

Cell o lies at f o of the axis before, or, where cells are areas, at f (o + 1/2) - 1/2; f is
size / new size, or 1 / scale if a scale is given; with ``align`` (size - 1) / (new size - 1), so
that the first and last cells lie on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import AnyArray, Array
from npucall.tensors import Shape

_TURNS = 8
"""So many cells of each sum are added one after the other; sums of more are reduced."""


class Stretch(NamedTuple):
    """An axis of ``size`` cells that gets ``cells``."""

    size: int
    cells: int
    scale: float = 0.0
    """Of the extents, if it is positive; otherwise it follows from them."""
    align: bool = False

    def factor(self) -> float:
        """F above."""
        if self.align:
            return (self.size - 1) / (self.cells - 1) if self.cells > 1 else 0.0
        return 1 / self.scale if self.scale > 0 else self.size / self.cells


Taps: TypeAlias = "tuple[AnyArray, AnyArray | None]"
"""The cells of each sum, (new size, k), and their weights; None where all are 1."""
Mode: TypeAlias = "Callable[[Stretch], Taps]"


def nearest(axis: Stretch) -> Taps:
    """The cell at ``floor(f o)``, with f and the product in float32, as everybody computes it.

    As in torch, it is o or o / 2 if the extents say so, whatever the scale.
    """
    places = np.arange(axis.cells)
    if axis.cells == 2 * axis.size:
        places = places // 2
    elif axis.cells != axis.size:
        places = _floored(axis, places.astype(np.float32))
    return np.minimum(places, axis.size - 1)[:, np.newaxis], None


def nearest_exact(axis: Stretch) -> Taps:
    """The cell at ``floor(f (o + 1/2))``, with f and the product in float32."""
    places = _floored(axis, np.arange(axis.cells) + np.float32(0.5))
    return np.minimum(places, axis.size - 1)[:, np.newaxis], None


def _floored(axis: Stretch, places: AnyArray) -> AnyArray:
    """Of so many cells as there may be the largest stays an integer."""
    with np.errstate(all="ignore"):
        found = places.astype(np.float32) * np.float32(axis.factor())
    return np.floor(np.fmin(found, axis.size)).astype(np.int64)


class Weighted(NamedTuple):
    """For each cell of a result those that are added: cells[starts[r] : starts[r + 1]]."""

    cells: AnyArray
    weights: AnyArray | None
    starts: AnyArray

    @classmethod
    def of(cls, taps: Taps, dtype: np.dtype[np.generic]) -> Weighted:
        """Those of the new cells."""
        places, weights = taps
        numbers = None if weights is None else weights.reshape(-1).astype(dtype)
        return cls(places.reshape(-1), numbers, np.arange(len(places) + 1) * places.shape[1])

    def transposed(self, size: int) -> Weighted:
        """Those of the cells before, each of which is in several sums."""
        order = np.argsort(self.cells, kind="stable")
        starts = np.searchsorted(self.cells[order], np.arange(size + 1))
        new = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return Weighted(new[order], None if self.weights is None else self.weights[order], starts)

    def reach(self, rows: slice) -> slice:
        """The cells that sums of some rows are taken from."""
        cells = self.cells[self.starts[rows.start] : self.starts[rows.stop]]
        return slice(int(cells.min()), int(cells.max()) + 1) if len(cells) else slice(0, 0)

    def part(self, rows: slice, columns: slice) -> Weighted:
        """The sums of some rows, as far as their cells are some columns, which begin at 0."""
        first, last = self.starts[rows.start], self.starts[rows.stop]
        cells = self.cells[first:last] - columns.start
        weights = None if self.weights is None else self.weights[first:last]
        starts = self.starts[rows.start : rows.stop + 1] - first
        inside = (cells >= 0) & (cells < columns.stop - columns.start)
        if inside.all():
            return Weighted(cells, weights, starts)
        starts = np.concatenate([[0], np.cumsum(inside)])[starts]
        return Weighted(cells[inside], None if weights is None else weights[inside], starts)

    def added(self, array: AnyArray, axis: int) -> AnyArray:
        """The sums along an axis of an array."""
        counts = np.diff(self.starts)
        if len(counts) and counts[0] == counts.max() == counts.min() and 0 < counts[0] <= _TURNS:
            step = int(counts[0])
            total = self._taken(array, axis, slice(0, None, step))
            for turn in range(1, step):
                total += self._taken(array, axis, slice(turn, None, step))
            return total
        moved = [len(counts) if place == axis else n for place, n in enumerate(array.shape)]
        total = np.zeros(moved, array.dtype)
        filled = np.flatnonzero(counts)
        if len(filled):
            sums = np.add.reduceat(self._taken(array, axis, slice(None)), self.starts[filled], axis)
            total[(slice(None),) * axis + (filled,)] = sums
        return total

    def _taken(self, array: AnyArray, axis: int, some: slice) -> AnyArray:
        """Cells with their weights."""
        taken = array.take(self.cells[some], axis)
        if self.weights is not None:
            taken *= self.weights[some].reshape(-1, *(1,) * (array.ndim - 1 - axis))
        return taken


def resized(
    facts: Facts, array: Array, mode: Mode, axes: Sequence[Stretch], output: str
) -> AnyArray:
    """The last axes of an array get other extents; ``output``: the name of the result."""
    sums = [Weighted.of(mode(axis), facts.dtype) for axis in axes]
    return _summed(facts, array, sums, tuple(axis.cells for axis in axes), output)


def gradient(
    facts: Facts, array: Array, mode: Mode, axes: Sequence[Stretch], output: str
) -> AnyArray:
    """The gradient of ``resized``, of gradients of its result."""
    sums = [Weighted.of(mode(axis), facts.dtype).transposed(axis.size) for axis in axes]
    return _summed(facts, array, sums, tuple(axis.size for axis in axes), output)


def holds(axes: Sequence[Stretch], taps: int, *, backward: bool) -> int:
    """Bytes of the sums of all cells."""
    each = 64 if backward else 32
    return sum(each * axis.cells * taps + 16 * axis.size for axis in axes)


def _summed(
    facts: Facts, array: Array, sums: Sequence[Weighted], cells: Shape, output: str
) -> AnyArray:
    count = len(cells)
    lead, before = array.shape[:-count], array.shape[-count:]
    out = facts.output(output, (*lead, *cells))
    order = _order(before, cells)

    def compute(block: tuple[slice, ...]) -> None:
        rows = block[len(lead) :]
        reach = (*block[: len(lead)], *(s.reach(r) for s, r in zip(sums, rows, strict=True)))
        pieces = cut(tuple(each.stop - each.start for each in reach), BLOCK)
        total = np.zeros([piece.stop - piece.start for piece in block], facts.dtype)
        for piece in pieces:
            index = tuple(
                slice(each.start + own.start, each.start + own.stop)
                for each, own in zip(reach, piece, strict=True)
            )
            part = facts.read(array, index)
            for axis in order:
                place = len(lead) + axis
                part = sums[axis].part(rows[axis], index[place]).added(part, place)
            if len(pieces) == 1:
                total = part
            else:
                total[piece[: len(lead)]] += part
        out[block] = total

    shrinks = -(-prod(before) // prod(cells))
    facts.each(cut((*lead, *cells), max(BLOCK // shrinks, 1)), compute)
    return out


def _order(before: Shape, cells: Shape) -> list[int]:
    """Axes as they are cheap: those that shrink first, and of those that grow the last first."""

    def key(axis: int) -> tuple[float, int]:
        grows = cells[axis] / before[axis]
        return grows, -axis if grows > 1 else axis

    return sorted(range(len(cells)), key=key)
