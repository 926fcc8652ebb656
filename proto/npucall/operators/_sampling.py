"""Planes between their cells: what is at some places, and the gradients of that.

Along an axis of ``size`` cells the number g of a grid is the place (g + 1) size / 2 - 1/2, with
``align_corners`` (g + 1) (size - 1) / 2. What is at a place is a sum over the corners around it,
each of which is one cell along each axis::

    y = sum over corners of x[corner] product of w[axis, cell]

The gradient adds ``dy`` times these weights to the corners' cells. That of the grid has, for one
axis, the derivative of its weight in the product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.dtypes import AnyArray
from npucall.operators._interpolation import curve

BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
_FAR = 2.0**40
"""A place beyond all cells; there is one that is no number."""
_LEAST = 16
"""Numbers of each place of a block, at the least."""
_MOST = 3
"""Blocks that are computed as one."""
_AT_ONCE = 1 << 13
"""Gradients that are added at once."""
_A = -0.75


class Sampling(NamedTuple):
    """How a call samples."""

    mode: int
    padding: int
    align: bool

    def places(self, grid: AnyArray, size: int) -> tuple[AnyArray, float]:
        """Places along an axis, and their derivative by the grid's numbers."""
        slope = (size - 1 if self.align else size) / 2
        places = (grid.astype(np.float64) + 1) * slope - (0 if self.align else 0.5)
        return np.clip(np.nan_to_num(places, nan=-_FAR), -_FAR, _FAR), slope

    def moved(self, places: AnyArray, size: int) -> tuple[AnyArray, AnyArray]:
        """Places beyond the ends as the padding has them, and the derivative of that."""
        slope = np.ones(places.shape)
        if self.padding == ZEROS:
            return places, slope
        if self.padding == REFLECTION:
            low, span = (0.0, size - 1) if self.align else (-0.5, size)
            turns = (places - low) // max(span, 1)
            rest = places - low - turns * max(span, 1)
            back = turns % 2 == 1
            places = np.where(back, span - rest, rest) + low
            slope = np.where(back, -1.0, 1.0)
        slope *= (places > 0) & (places < size - 1)
        return np.clip(places, 0, size - 1), slope


class Corners(NamedTuple):
    """The cells around each place along one axis; each array is (cells, *places)."""

    cells: AnyArray
    weights: AnyArray
    """0 of a cell that does not count."""
    slopes: AnyArray
    """Derivatives of the weights by the grid's numbers."""

    @classmethod
    def around(cls, grid: AnyArray, size: int, way: Sampling) -> Corners:
        """The cells around places that a grid names."""
        places, factor = way.places(grid, size)
        if way.mode == BICUBIC:
            first = np.floor(places)
            rest = places - first
            cells = np.stack([way.moved(first + step, size)[0] for step in (-1, 0, 1, 2)])
            away = np.stack([rest + 1, rest, 1 - rest, 2 - rest])
            signs = np.array([1, 1, -1, -1]).reshape(-1, *(1,) * grid.ndim)
            return cls._inside(cells, size, curve(away, _A), factor * signs * _slope(away))
        places, slope = way.moved(places, size)
        if way.mode == NEAREST:
            ones = np.ones((1, *grid.shape))
            return cls._inside(np.rint(places)[np.newaxis], size, ones, 0 * ones)
        first = np.floor(places)
        rest, slope = places - first, factor * slope
        weights = np.stack([1 - rest, rest])
        return cls._inside(np.stack([first, first + 1]), size, weights, np.stack([-slope, slope]))

    @classmethod
    def _inside(cls, cells: AnyArray, size: int, weights: AnyArray, slopes: AnyArray) -> Corners:
        inside = (cells >= 0) & (cells < size)
        found = np.where(inside, cells, 0).astype(np.int64)
        return cls(found, weights * inside, slopes * inside)


def _slope(away: AnyArray) -> AnyArray:
    """The derivative of ``curve`` at distances up to 2."""
    near = (3 * (_A + 2) * away - 2 * (_A + 3)) * away
    return np.where(away <= 1, near, _A * ((3 * away - 10) * away + 8))


def corners(axes: Sequence[Corners]) -> Iterator[tuple[int, ...]]:
    """For each corner which of the cells of each axis it is."""
    return product(*(range(len(axis.cells)) for axis in axes))


def cells_at(axes: Sequence[Corners], corner: tuple[int, ...]) -> tuple[AnyArray, ...]:
    """The cell of each axis at a corner."""
    return tuple(axis.cells[each] for axis, each in zip(axes, corner, strict=True))


def weight(axes: Sequence[Corners], corner: tuple[int, ...], by: int = -1) -> AnyArray:
    """The product of a corner's weights; of one axis their derivative."""
    found: AnyArray = np.ones(())
    for place, (axis, each) in enumerate(zip(axes, corner, strict=True)):
        found = found * (axis.slopes if place == by else axis.weights)[each]
    return found


class Grid(NamedTuple):
    """The planes and the grid of a call."""

    facts: Facts
    given: Mapping[str, Any]

    @property
    def planes(self) -> tuple[int, ...]:
        """The shape of the planes."""
        return self.facts.shapes["input"]

    def axes(self, block: tuple[slice, ...]) -> tuple[Corners, ...]:
        """Those of some items and places."""
        names = ("interpolation_mode", "padding_mode", "align_corners")
        way = Sampling(*(self.given[name] for name in names))
        grid = self.facts.read(self.given["grid"], block)
        sizes = enumerate(reversed(self.planes[2:]))  # x, the last axis, comes first
        return tuple(Corners.around(grid[..., n], size, way) for n, size in sizes)[::-1]

    def channels(self) -> Iterator[slice]:
        """Pieces of the channels, nearly always one."""
        for piece in cut(self.planes[1:2], BLOCK):
            yield from piece

    def blocks(self) -> Sequence[tuple[slice, ...]]:
        """Some items and places each."""
        shape = self.facts.shapes["grid"][:-1]
        each = max(self.planes[1], _LEAST)
        return cut(shape, max(shared_block(prod(shape) * each, _MOST) // each, 1))

    def at(self, block: tuple[slice, ...], channels: slice, cells: Sequence[AnyArray]) -> AnyArray:
        """A cell of each place of a block, the channels last."""
        items = np.arange(block[0].start, block[0].stop).reshape(-1, *(1,) * len(block[1:]))
        return self.facts.read(self.given["input"], (items, channels, *cells))

    def reader(
        self, block: tuple[slice, ...], channels: slice
    ) -> Callable[[tuple[AnyArray, ...]], AnyArray]:
        """Reads cells as ``at`` does; planes with no more cells than places are turned once."""
        places, plane = (prod(s.stop - s.start for s in block[1:]), prod(self.planes[2:]))
        if plane > places:
            return partial(self.at, block, channels)
        whole = self.facts.read(self.given["input"], (block[0], channels))
        items, count = whole.shape[:2]
        turned = np.ascontiguousarray(np.moveaxis(whole.reshape(items, count, plane), 1, 2))
        starts = (np.arange(items) * plane).reshape(-1, *(1,) * len(block[1:]))

        def read(cells: tuple[AnyArray, ...]) -> AnyArray:
            flat = np.ravel_multi_index(cells, self.planes[2:]) + starts
            return turned.reshape(-1, count).take(flat, 0)

        return read

    def sampled(self) -> AnyArray:
        """Writes what is at each place."""
        out = self.facts.output("out", self.facts.shapes["sampled"])
        plane, limit = prod(self.planes[2:]), shared_block(self.facts.count("sampled"), _MOST)

        def compute(block: tuple[slice, ...]) -> None:
            axes = self.axes(block)
            for channels in self.channels():
                total: Any = 0
                for corner in corners(axes):
                    x = self.at(block, channels, cells_at(axes, corner))
                    x *= weight(axes, corner)[..., np.newaxis].astype(x.dtype)
                    total += x
                out[(block[0], channels, *block[1:])] = np.moveaxis(total, -1, 1)

        def compute_planes(lead: tuple[slice, ...]) -> None:
            items, channels = lead
            for item in range(items.start, items.stop):
                one = slice(item, item + 1), channels
                x = self.facts.read(self.given["input"], one).reshape(-1, plane)
                count, many = len(x), len(x) >= _LEAST
                if many:  # all channels of a cell behind each other
                    x = np.ascontiguousarray(x.T)
                for piece in cut(places, max(limit // max(count, _LEAST), 1)):
                    axes = self.axes((one[0], *piece))
                    total: Any = 0
                    for corner in corners(axes):
                        cells = np.ravel_multi_index(cells_at(axes, corner), self.planes[2:])
                        found = x.take(cells.reshape(-1), int(not many))
                        factors = weight(axes, corner).reshape(-1).astype(x.dtype)
                        found *= factors[:, np.newaxis] if many else factors
                        total += found
                    total = total.T if many else total
                    out[(*one, *piece)] = total.reshape(1, count, *cells.shape[1:])

        places = self.facts.shapes["grid"][1:-1]
        if plane > limit:
            self.facts.each(self.blocks(), compute)
        else:
            largest = max(plane, prod(places))
            self.facts.each(cut(self.planes[:2], max(limit // largest, 1)), compute_planes)
        return out

    def gradient_of_grid(self, output: str) -> AnyArray:
        """Writes the gradient of the grid."""
        out = self.facts.output(output, self.facts.shapes["grid"])

        def compute(block: tuple[slice, ...]) -> None:
            axes = self.axes(block)
            total = np.zeros((*axes[0].cells.shape[1:], len(axes)))
            for channels in self.channels():
                dy = self.facts.read(self.given["grad_output"], (block[0], channels, *block[1:]))
                dy = np.ascontiguousarray(np.moveaxis(dy, 1, -1))
                read = self.reader(block, channels)
                for corner in corners(axes):
                    x = read(cells_at(axes, corner))
                    x *= dy
                    sums = x.sum(-1, np.float64)
                    for place in range(len(axes)):
                        total[..., -1 - place] += sums * weight(axes, corner, place)
            out[(*block, slice(None))] = total

        self.facts.each(self.blocks(), compute)
        return out

    def gradient_of_planes(self, output: str) -> AnyArray:
        """Writes the gradient of the planes."""
        out = self.facts.output(output, self.planes)
        plane, places = prod(self.planes[2:]), self.facts.shapes["grid"][1:-1]

        def compute(lead: tuple[slice, ...]) -> None:
            items, channels = lead
            total = np.zeros((channels.stop - channels.start, items.stop - items.start, plane))
            for first, *rest in cut((total.shape[1], *places), max(BLOCK // _LEAST, 1)):
                block = (slice(items.start + first.start, items.start + first.stop), *rest)
                self._add(total, channels, first.start, block)
            shape = (*total.shape[:2], *self.planes[2:])
            out[lead] = np.moveaxis(total.reshape(shape), 0, 1)

        limit = shared_block(prod(self.planes), _MOST)
        self.facts.each(cut(self.planes[:2], max(limit // plane, 1)), compute)
        return out

    def _add(self, total: AnyArray, channels: slice, first: int, block: tuple[slice, ...]) -> None:
        """Adds gradients of a block to the cells of all corners; ``first``: its item in the sums.

        The cells are the same ones for each channel: so a few channels at a time, or one.
        """
        axes, (_, items, plane) = self.axes(block), total.shape
        every = list(corners(axes))
        weights = np.stack([weight(axes, corner) for corner in every])
        cells = np.stack(
            [np.ravel_multi_index(cells_at(axes, each), self.planes[2:]) for each in every]
        )
        starts = np.arange(first, first + cells.shape[1]) * plane
        cells += starts.reshape(-1, *(1,) * (cells.ndim - 2))
        group = max(_AT_ONCE // max(cells.size, 1), 1)
        index = np.add.outer(np.arange(min(group, len(total))) * items * plane, cells.reshape(-1))
        for (some,) in cut(total.shape[:1], group):
            read = slice(channels.start + some.start, channels.start + some.stop)
            dy = self.facts.read(self.given["grad_output"], (block[0], read, *block[1:]))
            added = dy.swapaxes(0, 1)[:, np.newaxis] * weights
            there = index[: len(added)].reshape(-1)
            np.add.at(total[some].reshape(-1), there, added.reshape(-1))
