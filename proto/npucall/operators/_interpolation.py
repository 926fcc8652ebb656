"""Axes that get other extents: each new cell is a weighted sum of cells of the axis before it.

Along one axis, with few cells i in each sum::

    y[o] = sum of w[o, i] x[i]

and along several axes this for one after the other. The gradient of that has the same weights::

    dx[i] = sum of w[o, i] dy[o]

Cell o lies at f o of the axis before, or, where cells are areas, at f (o + 1/2) - 1/2; f is
size / new size, or 1 / scale if a scale is given; with ``align`` (size - 1) / (new size - 1), so
that the first and last cells lie on each other. Cells beyond an end are the one at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from npucall.dtypes import AnyArray

_FAR = 2.0**40
"""A place that is beyond all axes."""


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
        return min(1 / self.scale, _FAR) if self.scale > 0 else self.size / self.cells


class Weighted(NamedTuple):
    """For each cell of a result those that are added: cells[starts[r] : starts[r + 1]]."""

    cells: AnyArray
    weights: AnyArray | None
    starts: AnyArray

    @classmethod
    def uniform(cls, size: int, places: AnyArray, weights: AnyArray | None = None) -> Weighted:
        """As many in each: ``places`` and ``weights`` are (new size, k)."""
        cells = np.clip(places, 0, size - 1).reshape(-1)
        starts = np.arange(len(places) + 1) * places.shape[1]
        return cls(cells, None if weights is None else weights.reshape(-1), starts)

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


Mode: TypeAlias = "Callable[[Stretch], Weighted]"
Axes: TypeAlias = "Sequence[Stretch]"


def nearest(axis: Stretch) -> Weighted:
    """The cell at ``floor(f o)``, with f and the product in float32, as everybody computes it."""
    places = _floored(axis, np.arange(axis.cells, dtype=np.float32))
    return Weighted.uniform(axis.size, places[:, np.newaxis])


def nearest_by_extents(axis: Stretch) -> Weighted:
    """The same, but o or o / 2 if the extents say so, whatever the scale: torch's gradients."""
    if axis.cells in (axis.size, 2 * axis.size):
        return nearest(axis._replace(scale=0.0))
    return nearest(axis)


def nearest_exact(axis: Stretch) -> Weighted:
    """The cell at ``floor(f (o + 1/2))``, with f and the product in float32."""
    places = _floored(axis, np.arange(axis.cells) + np.float32(0.5))
    return Weighted.uniform(axis.size, places[:, np.newaxis])


def linear(axis: Stretch) -> Weighted:
    """Both cells beside a place, by their distance: ``(1 - t) x[i] + t x[i + 1]``."""
    if axis.size == axis.cells:  # as in torch, whatever the scale
        first, rest = np.arange(axis.size), np.zeros(axis.size)
        return Weighted.uniform(
            axis.size, np.stack([first, first], 1), np.stack([1 - rest, rest], 1)
        )
    first, rest = _between(axis, np.maximum(_places(axis), 0))
    return Weighted.uniform(axis.size, first[:, np.newaxis] + (0, 1), np.stack([1 - rest, rest], 1))


def cubic(axis: Stretch) -> Weighted:
    """Four cells around a place, by a cubic of their distance with a = -3/4."""
    first, rest = _between(axis, _places(axis))
    away = np.stack([rest + 1, rest, 1 - rest, 2 - rest], 1)
    return Weighted.uniform(axis.size, first[:, np.newaxis] + (-1, 0, 1, 2), curve(away, -0.75))


def smooth_linear(axis: Stretch) -> Weighted:
    """All cells under a triangle around a place, which is f cells wide on each side if f > 1."""
    return _smooth(axis, 1, lambda away: np.maximum(1 - away, 0))


def smooth_cubic(axis: Stretch) -> Weighted:
    """The same under a cubic with a = -1/2, twice as wide."""
    return _smooth(axis, 2, lambda away: curve(away, -0.5))


def _smooth(axis: Stretch, width: int, weigh: Callable[[AnyArray], AnyArray]) -> Weighted:
    """Sums under a curve, whose weights are 1 in all."""
    stretch = max(axis.factor(), 1.0)
    centre = axis.factor() * (np.arange(axis.cells) + 0.5)
    first, last = (
        np.clip(centre + side * width * stretch + 0.5, 0, axis.size).astype(np.int64)
        for side in (-1, 1)
    )
    counts = last - first
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = np.repeat(np.arange(axis.cells), counts)
    cells = np.arange(starts[-1]) - starts[rows] + first[rows]
    weights = weigh(np.abs(cells + 0.5 - centre[rows]) / stretch)
    total = np.bincount(rows, weights, axis.cells)
    weights /= np.where(total == 0, 1, total)[rows]
    return Weighted(cells, weights, starts)


def curve(away: AnyArray, a: float) -> AnyArray:
    """A cubic of distances up to 2, whose sum over whole steps is 1; 0 beyond."""
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    out = np.minimum(away, 2)
    far = a * (((out - 5) * out + 8) * out - 4)
    return np.where(away <= 1, near, far)


def _places(axis: Stretch) -> AnyArray:
    """Where the new cells lie on the axis before."""
    cells = np.arange(axis.cells)
    return axis.factor() * cells if axis.align else axis.factor() * (cells + 0.5) - 0.5


def _between(axis: Stretch, places: AnyArray) -> tuple[AnyArray, AnyArray]:
    """The cell before each place, and how far behind it that is."""
    first = np.minimum(np.floor(places), axis.size - 1)
    return first.astype(np.int64), np.clip(places - first, 0, 1)


def _floored(axis: Stretch, places: AnyArray) -> AnyArray:
    """Of so many cells as there may be the largest stays an integer."""
    found = places.astype(np.float32) * np.float32(axis.factor())
    return np.floor(np.minimum(found, axis.size)).astype(np.int64)


def holds(mode: Mode, axes: Axes, *, backward: bool) -> int:
    """Bytes of the sums of all cells."""
    each = 64 if backward or mode in (smooth_linear, smooth_cubic) else 32
    return sum(each * axis.cells * _most(mode, axis) + 16 * axis.size for axis in axes)


def _most(mode: Mode, axis: Stretch) -> int:
    """Cells of the longest sum, and what else is held while they are found, in such cells."""
    known: dict[Mode, int] = {
        nearest: 1,
        nearest_by_extents: 1,
        nearest_exact: 1,
        linear: 3,
        cubic: 7,
    }
    if mode in known:
        return known[mode]
    width = 2 if mode is smooth_cubic else 1
    return int(min(2 * width * max(axis.factor(), 1.0) + 2, axis.size))
