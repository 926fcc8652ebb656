"""The backward recursion of the connectionist temporal classification loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK
from npucall.dtypes import AnyArray, Array
from npucall.operators._ctc_states import Labels, StateRange, States, shifted, states_of


class BackwardArguments(NamedTuple):
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


def go_back(given: BackwardArguments, out: AnyArray) -> None:
    """Writes the gradient of every item."""
    _, items, classes = given.log_probs.shape
    size = max(BLOCK // max(given.width, classes), 1)
    labels = Labels.of(given.facts, given.targets, given.target_lengths, given.blank)
    for first in range(0, items, size):
        _Group(given, labels, slice(first, min(first + size, items))).go_back(out)


class _Group:
    """Items side by side."""

    def __init__(self, given: BackwardArguments, labels: Labels, items: slice) -> None:
        self._given, self._items = given, items
        facts = given.facts
        self._count = items.stop - items.start
        self._rows = np.arange(self._count)[:, np.newaxis]
        lengths = given.input_lengths[items]
        self._steps = max(lengths)
        self._ends = np.array(lengths, np.int64)[:, np.newaxis] - 1
        self._upstream, self._loss = (
            np.asarray(facts.read(array, items), np.float64)[:, np.newaxis]
            for array in (given.grad_out, given.neg_log_likelihood)
        )
        self._states = States(labels, items, given.width)

    def go_back(self, out: AnyArray) -> None:
        """Writes the gradient of each step, from the last one on."""
        given, facts = self._given, self._given.facts
        steps, _, classes = given.log_probs.shape
        for index in facts.blocks((steps - self._steps, self._count, classes)):
            late, items, columns = index
            out[_moved(late, self._steps), _moved(items, self._items.start), columns] = (
                facts.dtype.type(0)
            )
        backward = np.full((self._count, given.width), -np.inf)
        for step in reversed(range(self._steps)):
            paths = np.full((self._count, classes), -np.inf)
            for piece in self._states.pieces():
                facts.pause()
                self._take_step(step, piece, backward, paths)
            for (columns,) in facts.blocks((classes,)):
                gradient = self._gradient(step, columns, paths[:, columns])
                out[step : step + 1, self._items, columns] = gradient[np.newaxis]

    def _take_step(self, step: int, piece: StateRange, backward: AnyArray, paths: AnyArray) -> None:
        """From the states' ``b[step + 1]`` to ``b[step]``, and adds them to their classes' paths.

        Later states are not changed before earlier ones have looked at them.
        """
        facts, given = self._given.facts, self._given
        states, classes, inside = piece.states, piece.classes, piece.inside
        everyone = self._rows + self._items.start
        emitted = facts.read(given.log_probs, (step, everyone, classes)).astype(np.float64)
        skipped = np.where(piece.onward, shifted(backward, states, 2), -np.inf)
        onward = np.logaddexp(backward[:, states], shifted(backward, states, 1))
        onward = np.logaddexp(onward, skipped)
        ending = np.where(piece.last, emitted, -np.inf)
        now = np.where(step == self._ends, ending, np.where(inside, emitted + onward, -np.inf))
        backward[:, states] = now
        forward = facts.read(given.log_alpha, (self._items, step, states)).astype(np.float64)
        np.logaddexp.at(paths, (self._rows, classes), np.where(inside, forward + now, -np.inf))

    def _gradient(self, step: int, columns: slice, paths: AnyArray) -> AnyArray:
        given = self._given
        block = given.facts.read(given.log_probs, (step, self._items, columns))
        wide = block.astype(np.float64)
        gradient = self._upstream * (np.exp(wide) - np.exp(paths + self._loss - wide))
        without = given.zero_infinity & (self._loss == np.inf)
        result: AnyArray = np.where(without | (step > self._ends), 0, gradient)
        return result


def _moved(piece: slice, by: int) -> slice:
    return slice(piece.start + by, piece.stop + by)
