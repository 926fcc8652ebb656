"""Cells of an axis as a few slices: NumPy copies these several times as fast as it takes cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from npucall.dtypes import AnyArray

_PHASES, _ENDS = 4, 4
"""How far apart cells in one slice may be, and how many slices there are then at the most."""
_NARROW = 4
"""Cells of a last axis up to which each is copied alone, all rows at once."""
Runs: TypeAlias = "Sequence[tuple[slice, slice]]"
"""Where cells go, and which they are."""


class RunStep(NamedTuple):
    """Cells that are added to some places, or are the first there; one cell may be for them all."""

    to: slice
    of: slice
    weights: AnyArray | None = None
    is_first: bool = True


def runs_of(cells: AnyArray) -> Runs:
    """Where cells go, and which they are, as few slices: those that are steps of one length apart.

    Of every cell, or of every second, third or fourth. Nothing if there are too many slices.
    """
    for each in range(1, _PHASES + 1):
        found = [run for phase in range(each) for run in _steady(cells[phase::each], phase, each)]
        if len(found) <= _ENDS * each:
            return found
    return ()


def _steady(cells: AnyArray, phase: int, each: int) -> Runs:
    """The runs of one length of step, of cells of which each is so many places behind another."""
    found, start, steps = [], 0, np.diff(cells)
    changes = (np.flatnonzero(np.diff(steps)) + 1).tolist()
    if len(changes) > 2 * _ENDS:
        return [(slice(0), slice(0))] * (len(changes) + 1)
    while start < len(cells):
        stop = next((change + 1 for change in changes if change > start), len(cells))
        after = next((change + 1 for change in changes if change >= stop), len(cells))
        if start + 1 < stop < after + start - stop:  # the longer one has the cell where they meet
            stop -= 1
        step = int(steps[start]) if stop > start + 1 else 1
        of = _slice(int(cells[start]), step, stop - start if step else 1)
        found.append((slice(phase + start * each, phase + (stop - 1) * each + 1, each), of))
        start = stop
    return found


def _slice(first: int, step: int, count: int) -> slice:
    stop = first + (step or 1) * count
    return slice(first, None if stop < 0 else stop, step or 1)


def cells_of(piece: slice) -> range:
    """The cells of a slice that begins somewhere."""
    return range(piece.start, -1 if piece.stop is None else piece.stop, piece.step or 1)


def sliced(
    array: AnyArray,
    count: int,
    runs: Runs,
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


def steps_of(
    rows: AnyArray | None, turns: Sequence[tuple[AnyArray, Runs, AnyArray | None]]
) -> list[RunStep] | None:
    """The cells of sums of one length, which are all or some rows; None if they are no slices."""
    found = []
    for number, (_, runs, weights) in enumerate(turns):
        for part, of in runs:
            places = [(part, part)] if rows is None else runs_of(rows[part])
            if len(places) > 1:
                return None
            ((_, to),) = places
            found.append(RunStep(to, of, None if weights is None else weights[part], number == 0))
        if not runs:
            return None
    return found


def apart(step: RunStep) -> list[RunStep]:
    """A step of a few cells as one for each."""
    to, of = cells_of(step.to), cells_of(step.of)
    if len(to) > _NARROW:
        return [step]
    weights = [None] * len(to) if step.weights is None else np.split(step.weights, len(to))
    pairs = zip(to, [*of] * (len(to) // len(of)), weights, strict=True)
    return [
        RunStep(slice(place, place + 1), slice(cell, cell + 1), weight, step.is_first)
        for place, cell, weight in pairs
    ]


def echo(step: RunStep, main: RunStep) -> slice | None:
    """The places of another step to which the cells of a step went, if that is a row of cells."""
    cells, found = cells_of(step.of), cells_of(main.of)
    if main.of.step != 1 or main.to.step != 1 or not {cells[0], cells[-1]} <= {*found}:
        return None
    return _slice(cells[0] - main.of.start + main.to.start, cells.step, len(cells))


def copy(
    found: AnyArray,
    array: AnyArray,
    axes: Sequence[Sequence[RunStep]],
    steps: tuple[RunStep, ...] = (),
) -> None:
    """Copies cells along the last axes; what is there already is not read again from the array."""
    if len(steps) == len(axes):
        to, of = zip(*((step.to, step.of) for step in steps), strict=True)
        found[(..., *to)] = array[(..., *of)]
        return
    main, *others = axes[len(steps)]
    before: Any = [step.to for step in steps]
    after = (slice(None),) * (len(axes) - len(steps) - 1)
    copy(found, array, axes, (*steps, main))
    for step in others:
        there = echo(step, main) if after else None
        if there is None:
            copy(found, array, axes, (*steps, step))
            continue
        to, of = ((..., *before, each, *after) for each in (step.to, there))
        found[to] = found[of]
