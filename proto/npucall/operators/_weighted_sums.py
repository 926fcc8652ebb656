"""Weighted sums along axes, taken block by block: of cells that are slices, as slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.dtypes import AnyArray, Array
from npucall.operators._interpolation import Weighted
from npucall.tensors import Shape

_TURNS = 8
"""So many cells of each sum are added one after the other; sums of more are reduced."""
_EXACT = 64
"""From so many cells of a sum on it is taken in float64."""
_MOST, _PLANS = 3, 16
"""Blocks that are computed as one, and plans of a call that are kept."""
_PHASES, _ENDS = 4, 4
"""How far apart cells in one slice may be, and how many slices there are then at the most."""


class _Plan:
    """Sums along an axis, found once for all arrays of which they are taken.

    ``often``: there are many, so that it is worth while to look for slices.
    """

    def __init__(self, sums: Weighted, *, often: bool) -> None:
        counts = np.diff(sums.starts)
        self.rows, self._is_exact = len(counts), counts.max() >= _EXACT
        self._groups = []
        for count in map(int, np.unique(counts[counts > 0])):
            rows = np.flatnonzero(counts == count)
            turns = np.add.outer(np.arange(count), sums.starts[rows])
            some = turns if count <= _TURNS else turns.T.reshape(1, -1)
            weights = [None if sums.weights is None else sums.weights[each] for each in some]
            cells = [sums.cells[each] for each in some]
            runs = [runs_of(each) if often else () for each in cells]
            places: Sequence[tuple[slice, Any]] = runs_of(rows)
            places = () if len(rows) == len(counts) else places or [(slice(None), rows)]
            self._groups.append((count, places, list(zip(cells, runs, weights, strict=True))))

        self.copies = self._groups[0][2][0][1] if self._copies() else ()
        """If each sum is a cell: where cells go, and which they are."""

    def _copies(self) -> bool:
        if len(self._groups) != 1 or self._groups[0][:2] != (1, ()):
            return False
        return self._groups[0][2][0][2] is None

    def added(self, array: AnyArray, axis: int) -> AnyArray:
        """The sums along an axis of an array; those of one length together."""
        shape, lead = list(array.shape), (slice(None),) * axis
        shape[axis] = self.rows
        total = None
        for count, places, turns in self._groups:
            first, *others = (self._taken(array, axis, *turn) for turn in turns)
            for taken in others:
                first += taken
            if count > _TURNS:
                parts = first.reshape(*shape[:axis], -1, count, *shape[axis + 1 :])
                first = parts.sum(axis + 1, np.float64 if count >= _EXACT else None)
            if not places:
                return first
            if total is None:
                total = np.zeros(shape, np.float64 if self._is_exact else array.dtype)
            for to, of in places:
                total[(*lead, of)] = first[(*lead, to)]
        return np.zeros(shape, array.dtype) if total is None else total

    def _taken(
        self,
        array: AnyArray,
        axis: int,
        cells: AnyArray,
        runs: Sequence[tuple[slice, slice]],
        weights: AnyArray | None,
    ) -> AnyArray:
        """Cells with their weights."""
        if weights is not None:
            weights = weights.astype(array.dtype)
        if runs and axis == array.ndim - 1:
            return sliced(array, len(cells), runs, weights)
        taken = array.take(cells, axis)
        if weights is not None:
            taken *= weights.reshape(-1, *(1,) * (array.ndim - 1 - axis))
        return taken


def _copied(array: AnyArray, plans: Sequence[_Plan]) -> AnyArray:
    """Cells along the last axes, slices at a time."""
    shape = (*array.shape[: -len(plans)], *(each.rows for each in plans))
    found = np.empty(shape, array.dtype)
    for runs in product(*(each.copies for each in plans)):
        to, of = zip(*runs, strict=True)
        found[(..., *to)] = array[(..., *of)]
    return found


def sliced(
    array: AnyArray,
    count: int,
    runs: Sequence[tuple[slice, slice]],
    factors: AnyArray | None = None,
) -> AnyArray:
    """So many cells along the last axis that are ``runs``, with their factors."""
    found = np.empty((*array.shape[:-1], count), array.dtype)
    for to, of in runs:
        if factors is None:
            found[..., to] = array[..., of]
        else:
            np.multiply(array[..., of], factors[..., to], out=found[..., to])
    return found


def runs_of(cells: AnyArray) -> Sequence[tuple[slice, slice]]:
    """Where cells go, and which they are, as few slices: those that are steps of one length apart.

    Of every cell, or of every second, third or fourth. Nothing if there are too many slices.
    NumPy copies slices of a last axis several times as fast as it takes its cells.
    """
    for each in range(1, _PHASES + 1):
        found = [run for phase in range(each) for run in _steady(cells[phase::each], phase, each)]
        if len(found) <= _ENDS * each:
            return found
    return ()


def _steady(cells: AnyArray, phase: int, each: int) -> Sequence[tuple[slice, slice]]:
    """The runs of one length of step, of cells of which each is so many places behind another."""
    found, start, steps = [], 0, np.diff(cells)
    changes = np.flatnonzero(np.diff(steps)) + 1
    if len(changes) > 2 * _ENDS:
        return [(slice(0), slice(0))] * (len(changes) + 1)
    while start < len(cells):
        stop = next((int(c) + 1 for c in changes if c > start), len(cells))
        first, step = int(cells[start]), int(steps[start]) if stop > start + 1 else 1
        last = first + step * (stop - start - 1)
        beyond = last + (1 if step > 0 else -1)
        of = (
            slice(first, first + 1)
            if not step
            else slice(first, None if beyond < 0 else beyond, step)
        )
        found.append((slice(phase + start * each, phase + (stop - 1) * each + 1, each), of))
        start = stop
    return found


def summed(facts: Facts, array: Array, sums: Sequence[Weighted], output: str) -> AnyArray:
    """The sums along the last axes of an array, one after the other; ``output``: their name."""
    cells = tuple(len(each.starts) - 1 for each in sums)
    lead, before = array.shape[: -len(cells)], array.shape[-len(cells) :]
    out = facts.output(output, (*lead, *cells))
    order = _order(before, cells)

    @lru_cache(_PLANS)
    def planned(axis: int, *bounds: int) -> _Plan:
        return _Plan(sums[axis].part(slice(*bounds[:2]), slice(*bounds[2:])), often=True)

    def plan(axis: int, rows: slice, columns: slice) -> _Plan:
        return planned(axis, rows.start, rows.stop, columns.start, columns.stop)

    def compute(block: tuple[slice, ...]) -> None:
        out[block] = added_up(lambda index: facts.read(array, index), sums, order, block, plan)

    shrinks = -(-prod(before) // prod(cells))
    limit = shared_block(prod(lead) * prod(cells), _MOST)
    facts.each(cut((*lead, *cells), max(limit // shrinks, 1)), compute)
    return out


def added_up(
    read: Callable[[tuple[slice, ...]], AnyArray],
    sums: Sequence[Weighted],
    order: Sequence[int],
    block: tuple[slice, ...],
    plan: Callable[[int, slice, slice], _Plan] | None = None,
) -> AnyArray:
    """A block of the sums along the last axes, in this order, of what ``read`` gives in pieces.

    ``plan``: finds the sums of an axis, of some rows and cells, if these come again.
    """
    plan = plan or (lambda axis, *part: _Plan(sums[axis].part(*part), often=False))
    lead = len(block) - len(sums)
    rows = block[lead:]
    reach = (*block[:lead], *(s.reach(r) for s, r in zip(sums, rows, strict=True)))
    pieces = cut(tuple(each.stop - each.start for each in reach), _MOST * BLOCK)
    total = None
    for piece in pieces:
        index = tuple(
            slice(each.start + own.start, each.start + own.stop)
            for each, own in zip(reach, piece, strict=True)
        )
        part = read(index)
        plans = [plan(axis, rows[axis], index[lead + axis]) for axis in range(len(sums))]
        if all(each.copies for each in plans):
            part = _copied(part, plans)
        else:
            for axis in order:
                part = plans[axis].added(part, lead + axis)
        if len(pieces) == 1:
            return part
        if total is None:
            total = np.zeros([each.stop - each.start for each in block])
        total[piece[:lead]] += part
    return np.zeros([each.stop - each.start for each in block]) if total is None else total


def _order(before: Shape, cells: Shape) -> list[int]:
    """Axes as they are cheap: those that shrink first, and of those that grow the last first."""

    def key(axis: int) -> tuple[float, int]:
        grows = cells[axis] / before[axis]
        return grows, -axis if grows > 1 else axis

    return sorted(range(len(cells)), key=key)
