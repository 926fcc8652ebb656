"""Weighted sums along axes, taken block by block: of cells that are slices, as slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.dtypes import AnyArray, Array
from npucall.operators._interpolation import Weighted
from npucall.operators._runs import Runs, RunStep, apart, cells_of, copy, runs_of, sliced, steps_of
from npucall.tensors import Shape

_TURNS = 8
"""So many cells of each sum are added one after the other; sums of more are reduced."""
_EXACT = 64
"""From so many cells of a sum on it is taken in float64."""
_MOST, _PLANS = 3, 16
"""Blocks that are computed as one, and plans of a call that are kept."""


class _Plan:
    """Sums along an axis, found once for all arrays of which they are taken.

    ``often``: there are many, so that it is worth while to look for slices. ``is_last``: they are
    taken along the last axis, where a slice of a few cells takes as long as each of these alone.
    """

    def __init__(self, sums: Weighted, *, often: bool, is_last: bool = False) -> None:
        counts = np.diff(sums.starts)
        self.rows, self._is_exact = len(counts), counts.max() >= _EXACT
        self._has_empty = counts.min() == 0
        lengths = map(int, np.unique(counts[counts > 0]))
        self._groups = [_group(sums, counts, length, often=often) for length in lengths]
        found: list[list[RunStep] | None] = [None]
        if often and counts.max() <= _TURNS:
            found = [steps_of(rows, turns) for _, rows, _, turns in self._groups]
        steps = [step for each in found for step in each or ()] if None not in found else []
        if is_last:
            steps = [cell for step in steps for cell in apart(step)]
        self.steps = sorted(steps, key=lambda step: -len(cells_of(step.to)) * step.is_first)
        """If all cells are slices: the first ones of all sums, of these the longest, which bring
        near what the others read; then the others."""
        others = any(step.weights is not None or not step.is_first for step in steps)
        self.copies = bool(steps) and not (self._has_empty or others)
        """Whether each sum is a cell."""

    def added(self, array: AnyArray, axis: int, place: AnyArray | None = None) -> AnyArray:
        """The sums along an axis of an array, which may be written to ``place``."""
        shape, lead = list(array.shape), (slice(None),) * axis
        shape[axis] = self.rows
        if self.steps:
            found = np.empty(shape, array.dtype) if place is None else place
            self._add(array, lead, found)
            return found
        return self._grouped(array, axis, shape)

    def _add(self, array: AnyArray, lead: tuple[slice, ...], found: AnyArray) -> None:
        """Adds cells slice by slice."""
        if self._has_empty:
            found[...] = 0
        after = (1,) * (array.ndim - 1 - len(lead))
        for to, of, weights, is_first in self.steps:
            cells, there = array[(*lead, of)], found[(*lead, to)]
            if weights is None:
                taken = cells
            else:
                factors = weights.astype(array.dtype).reshape(-1, *after)
                taken = np.multiply(cells, factors, out=there if is_first else None)
            if not is_first:
                there += taken
            elif taken is not there:
                there[...] = taken

    def _grouped(self, array: AnyArray, axis: int, shape: list[int]) -> AnyArray:
        """The sums of one length together."""
        lead, total = (slice(None),) * axis, None
        for count, _, places, turns in self._groups:
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
        runs: Runs,
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


def _group(sums: Weighted, counts: AnyArray, count: int, *, often: bool) -> Any:
    """The sums of so many cells: these rows, if not all, as slices too; and each turn's cells."""
    rows = np.flatnonzero(counts == count)
    turns = np.add.outer(np.arange(count), sums.starts[rows])
    some = turns if count <= _TURNS else turns.T.reshape(1, -1)
    weights = [None if sums.weights is None else sums.weights[each] for each in some]
    cells = [sums.cells[each] for each in some]
    runs: list[Runs] = [runs_of(each) if often else () for each in cells]
    of_turns = list(zip(cells, runs, weights, strict=True))
    if len(rows) == len(counts):
        return count, None, (), of_turns
    places: Sequence[tuple[slice, Any]] = runs_of(rows)
    return count, rows, places or [(slice(None), rows)], of_turns


def _copied(array: AnyArray, plans: Sequence[_Plan], place: AnyArray | None) -> AnyArray:
    shape = (*array.shape[: -len(plans)], *(each.rows for each in plans))
    found = np.empty(shape, array.dtype) if place is None else place
    copy(found, array, [each.steps for each in plans])
    return found


def summed(facts: Facts, array: Array, sums: Sequence[Weighted], output: str) -> AnyArray:
    """The sums along the last axes of an array, one after the other; ``output``: their name."""
    cells = tuple(len(each.starts) - 1 for each in sums)
    lead, before = array.shape[: -len(cells)], array.shape[-len(cells) :]
    out = facts.output(output, (*lead, *cells))
    order = _order(before, cells)

    plans = _Plans(sums, often=True)

    def compute(block: tuple[slice, ...]) -> None:
        place = facts.place(output, block)
        found = added_up(lambda index: facts.read(array, index), plans, order, block, place)
        if place is None:
            out[block] = found
        elif found is not place:
            place[...] = found

    shrinks = -(-prod(before) // prod(cells))
    limit = shared_block(prod(lead) * prod(cells), _MOST)
    facts.each(cut((*lead, *cells), max(limit // shrinks, 1)), compute)
    return out


class _Plans:
    """Those of some axes; most blocks have whole planes, so that they come again ``often``."""

    def __init__(self, sums: Sequence[Weighted], *, often: bool) -> None:
        self._sums, self._often = sums, often
        keep: Callable[[Any], Any] = lru_cache(_PLANS) if often else lambda found: found
        self._reach: Callable[..., slice] = keep(self._found_reach)
        self._plan: Callable[..., _Plan] = keep(self._found_plan)

    def reach(self, rows: Sequence[slice]) -> tuple[slice, ...]:
        """The cells that sums of some rows are taken from."""
        return tuple(self._reach(axis, each.start, each.stop) for axis, each in enumerate(rows))

    def of(self, rows: Sequence[slice], cells: Sequence[slice]) -> list[_Plan]:
        """The plan of each axis, for some rows as far as they are some cells."""
        return [
            self._plan(axis, row.start, row.stop, cell.start, cell.stop)
            for axis, (row, cell) in enumerate(zip(rows, cells, strict=True))
        ]

    def _found_reach(self, axis: int, *rows: int) -> slice:
        return self._sums[axis].reach(slice(*rows))

    def _found_plan(self, axis: int, *bounds: int) -> _Plan:
        part = self._sums[axis].part(slice(*bounds[:2]), slice(*bounds[2:]))
        return _Plan(part, often=self._often, is_last=axis == len(self._sums) - 1)


def added_up(
    read: Callable[[tuple[slice, ...]], AnyArray],
    sums: Sequence[Weighted] | _Plans,
    order: Sequence[int],
    block: tuple[slice, ...],
    place: AnyArray | None = None,
) -> AnyArray:
    """A block of the sums along the last axes, in this order, of what ``read`` gives in pieces.

    ``place``: where they may be written.
    """
    axes = sums if isinstance(sums, _Plans) else _Plans(sums, often=False)
    lead = len(block) - len(order)
    rows = block[lead:]
    reach = (*block[:lead], *axes.reach(rows))
    pieces = cut(tuple(each.stop - each.start for each in reach), _MOST * BLOCK)
    total = None
    for piece in pieces:
        index = tuple(
            slice(each.start + own.start, each.start + own.stop)
            for each, own in zip(reach, piece, strict=True)
        )
        part = read(index)
        plans = axes.of(rows, index[lead:])
        there = place if len(pieces) == 1 else None
        if all(each.copies for each in plans):
            part = _copied(part, plans, there)
        else:
            for axis in order:
                part = plans[axis].added(part, lead + axis, there if axis == order[-1] else None)
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
