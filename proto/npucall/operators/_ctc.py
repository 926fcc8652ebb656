"""The backward recursion of the connectionist temporal classification loss.

Items do not depend on each other. As many as fill a block are computed side by side, or one; of an
item with more states or classes than a block has elements, a block of these at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from npucall.declare.cuts import BLOCK, cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from npucall.declare import Facts
    from npucall.dtypes import AnyArray, Array

MATRIX = 2
"""Rank of targets that have a row for each item."""


class Losses(NamedTuple):
    """What a call gives, by the operator's names."""

    facts: Facts
    grad_out: Array
    log_probs: Array
    targets: Array
    input_lengths: Sequence[int]
    target_lengths: Sequence[int]
    neg_log_likelihood: Array
    log_alpha: Array
    blank: int
    zero_infinity: bool

    @property
    def width(self) -> int:
        """States of the item with the most labels."""
        return states_of(self.target_lengths)


def states_of(lengths: Sequence[int]) -> int:
    """States of the longest of some items, by the numbers of their labels."""
    return 2 * max(lengths, default=0) + 1


def go_back(losses: Losses, out: AnyArray) -> None:
    """Writes the gradient of every item."""
    _, items, classes = losses.log_probs.shape
    size = max(BLOCK // max(losses.width, classes), 1)
    starts = np.cumsum([0, *losses.target_lengths])
    for first in range(0, items, size):
        _Group(losses, slice(first, min(first + size, items)), starts).go_back(out)


class _Piece(NamedTuple):
    """Some of the states, of each item of a group."""

    states: slice
    classes: AnyArray
    """The class of each; blank behind the item's end."""
    inside: AnyArray
    """Whether the item has it."""
    last: AnyArray
    """Whether it is one of the item's last two."""
    skipping: AnyArray
    """Whether the path may go on two states ahead."""


class _Group:
    """Items side by side."""

    def __init__(self, losses: Losses, items: slice, starts: AnyArray) -> None:
        self._losses, self._items, self._starts = losses, items, starts
        facts = losses.facts
        self._count = items.stop - items.start
        self._rows = np.arange(self._count)[:, np.newaxis]
        self._labels = np.array(losses.target_lengths[items], np.int64)[:, np.newaxis]
        lengths = losses.input_lengths[items]
        self._steps = max(lengths)
        self._ends = np.array(lengths, np.int64)[:, np.newaxis] - 1
        self._upstream, self._loss = (
            np.asarray(facts.read(array, items), np.float64)[:, np.newaxis]
            for array in (losses.grad_out, losses.neg_log_likelihood)
        )
        cuts = [states for (states,) in cut((losses.width,), BLOCK)]
        self._cuts = cuts
        self._whole = [self._piece(cuts[0])] if len(cuts) == 1 else []

    def go_back(self, out: AnyArray) -> None:
        """Writes the gradient of each step, from the last one on."""
        losses, facts = self._losses, self._losses.facts
        steps, _, classes = losses.log_probs.shape
        for index in facts.blocks((steps - self._steps, self._count, classes)):
            late, items, columns = index
            out[_moved(late, self._steps), _moved(items, self._items.start), columns] = (
                facts.dtype.type(0)
            )
        backward = np.full((self._count, losses.width), -np.inf)
        for step in reversed(range(self._steps)):
            paths = np.full((self._count, classes), -np.inf)
            for piece in self._pieces():
                facts.pause()
                self._take_step(step, piece, backward, paths)
            for (columns,) in facts.blocks((classes,)):
                gradient = self._gradient(step, columns, paths[:, columns])
                out[step : step + 1, self._items, columns] = gradient[np.newaxis]

    def _take_step(self, step: int, piece: _Piece, backward: AnyArray, paths: AnyArray) -> None:
        """From the states' ``b[step + 1]`` to ``b[step]``, and adds them to their classes' paths.

        Later states are not changed before earlier ones have looked at them.
        """
        facts, losses = self._losses.facts, self._losses
        states, classes, inside, last, skipping = piece
        everyone = self._rows + self._items.start
        emitted = facts.read(losses.log_probs, (step, everyone, classes)).astype(np.float64)
        skipped = np.where(skipping, _ahead(backward, states, 2), -np.inf)
        onward = np.logaddexp(backward[:, states], _ahead(backward, states, 1))
        onward = np.logaddexp(onward, skipped)
        ending = np.where(last, emitted, -np.inf)
        now = np.where(step == self._ends, ending, np.where(inside, emitted + onward, -np.inf))
        backward[:, states] = now
        forward = facts.read(losses.log_alpha, (self._items, step, states)).astype(np.float64)
        np.logaddexp.at(paths, (self._rows, classes), np.where(inside, forward + now, -np.inf))

    def _gradient(self, step: int, columns: slice, paths: AnyArray) -> AnyArray:
        losses = self._losses
        block = losses.facts.read(losses.log_probs, (step, self._items, columns))
        wide = block.astype(np.float64)
        gradient = self._upstream * (np.exp(wide) - np.exp(paths + self._loss - wide))
        without = losses.zero_infinity & (self._loss == np.inf)
        result: AnyArray = np.where(without | (step > self._ends), 0, gradient)
        return result

    def _pieces(self) -> Iterator[_Piece]:
        yield from self._whole or map(self._piece, self._cuts)

    def _piece(self, states: slice) -> _Piece:
        blank = self._losses.blank
        more = self._classes(states.start, states.stop + 2)
        classes, ahead = more[:, :-2], more[:, 2:]
        numbers, ends = np.arange(states.start, states.stop), 2 * self._labels
        inside = numbers <= ends
        skipping = (classes != blank) & (classes != ahead)
        return _Piece(states, classes, inside, inside & (numbers >= ends - 1), skipping)

    def _classes(self, start: int, stop: int) -> AnyArray:
        """The classes of states: every second one is a label, the others are blank."""
        losses = self._losses
        classes = np.full((self._count, stop - start), losses.blank)
        for row in range(self._count):
            first, end = start // 2, min(stop // 2, int(self._labels[row, 0]))
            if first < end:
                places = slice(2 * first + 1 - start, 2 * end - start, 2)
                classes[row, places] = self._labels_of(row + self._items.start, first, end)
        return classes

    def _labels_of(self, item: int, first: int, end: int) -> AnyArray:
        losses = self._losses
        start = int(self._starts[item])
        matrix = len(losses.targets.shape) == MATRIX
        index = (item, slice(first, end)) if matrix else slice(start + first, start + end)
        return np.asarray(losses.facts.read(losses.targets, index), np.int64)


def _ahead(states: AnyArray, some: slice, distance: int) -> AnyArray:
    """What stands that many states ahead of some in each row; -inf behind its end."""
    part = states[:, some.start + distance : some.stop + distance]
    result = np.full((len(states), some.stop - some.start), -np.inf)
    result[:, : part.shape[1]] = part
    return result


def _moved(piece: slice, by: int) -> slice:
    return slice(piece.start + by, piece.stop + by)
