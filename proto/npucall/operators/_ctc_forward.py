"""The forward recursion of the connectionist temporal classification loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK
from npucall.dtypes import AnyArray, Array
from npucall.operators._ctc_states import ONE_ITEM, Labels, StateRange, States, shifted

_FIRST = 2
"""States that a path may begin in."""


class Losses(NamedTuple):
    """What a call gives, by the operator's names, and where its results go."""

    facts: Facts
    log_probs: Array
    input_lengths: Sequence[int]
    labels: Labels
    zeroes: bool
    """Whether infinite losses are answered as 0."""
    neg_log_likelihood: AnyArray
    log_alpha: AnyArray


def go_forward(losses: Losses) -> None:
    """Writes the forward variables and the loss of every item."""
    items, _, width = losses.facts.shapes["alpha"]
    size = max(BLOCK // width, 1)
    for first in range(0, items, size):
        _Group(losses, slice(first, min(first + size, items)), width).go_forward()


class _Group:
    """Items side by side."""

    def __init__(self, losses: Losses, items: slice, width: int) -> None:
        self._losses, self._items, self._width = losses, items, width
        self._states = States(losses.labels, items, width)
        lengths = losses.input_lengths[items]
        self._rows = np.arange(len(lengths))[:, np.newaxis]
        self._steps = max(lengths)
        self._ends = np.array(lengths, np.int64)[:, np.newaxis] - 1
        self._counts = np.array(losses.labels.lengths[items], np.int64)[:, np.newaxis]

    def go_forward(self) -> None:
        """Writes the forward variables of each step, and the losses."""
        facts, alpha = self._losses.facts, self._losses.log_alpha
        states = np.full((len(self._rows), self._width), -np.inf)
        loss = np.where(self._counts == 0, 0.0, np.inf)  # of items without steps
        for step in range(self._steps):
            for piece in self._states.pieces(backwards=True):
                facts.pause()
                self._take_step(step, piece, states)
                alpha[self._items, step : step + 1, piece.states] = states[
                    :, np.newaxis, piece.states
                ]
            loss = np.where(step == self._ends, -self._at_the_end(states), loss)
        late = facts.shapes["alpha"][1] - self._steps
        for items, steps, columns in facts.blocks((len(self._rows), late, self._width)):
            index = (_moved(items, self._items.start), _moved(steps, self._steps), columns)
            alpha[index] = np.full((), -np.inf)
        self._answer(np.where(self._losses.zeroes & (loss == np.inf), 0.0, loss))

    def _take_step(self, step: int, piece: StateRange, states: AnyArray) -> None:
        """From the states of the step before to those of this one, the last of them first."""
        now = self._emitted(step, piece)
        if step:
            before = np.logaddexp(states[:, piece.states], shifted(states, piece.states, -1))
            skipped = np.where(piece.entered, shifted(states, piece.states, -2), -np.inf)
            now = now + np.logaddexp(before, skipped)
        there = piece.inside & (step <= self._ends)
        there &= (step > 0) | (piece.numbers < _FIRST)
        states[:, piece.states] = np.where(there, now, -np.inf)

    def _emitted(self, step: int, piece: StateRange) -> AnyArray:
        """The logarithms of the probabilities of the states' classes."""
        log_probs = self._losses.log_probs
        everyone = self._rows + self._items.start
        place = (step,) if len(log_probs.shape) == ONE_ITEM else (step, everyone)
        return self._losses.facts.read(log_probs, (*place, piece.classes)).astype(np.float64)

    def _at_the_end(self, states: AnyArray) -> AnyArray:
        """The logarithm of what paths to an item's last two states have as probability."""
        ends = 2 * self._counts
        before = np.where(ends > 0, states[self._rows, np.maximum(ends - 1, 0)], -np.inf)
        return np.logaddexp(states[self._rows, ends], before)

    def _answer(self, loss: AnyArray) -> None:
        single = len(self._losses.log_probs.shape) == ONE_ITEM
        place = ... if single else self._items
        self._losses.neg_log_likelihood[place] = loss.reshape(() if single else -1)


def _moved(piece: slice, by: int) -> slice:
    return slice(piece.start + by, piece.stop + by)
