"""The states that paths of the connectionist temporal classification loss go through.

An item with S labels has 2 * S + 1 states: its labels, and blanks around them and between. Items do
not depend on each other. As many as fill a block are computed side by side, or one; of an item with
more states than a block has elements, a block of these at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import AnyArray, Array

MATRIX = 2
"""Rank of targets that have a row for each item."""
ONE_ITEM = 2
"""Rank of log-probabilities of a single item."""


def states_of(lengths: Sequence[int]) -> int:
    """States of the longest of some items, by the numbers of their labels."""
    return 2 * max(lengths, default=0) + 1


class Labels(NamedTuple):
    """The labels of all items."""

    facts: Facts
    targets: Array
    lengths: Sequence[int]
    blank: int
    starts: AnyArray
    """Where the labels of each item begin, if the items follow each other in one row."""

    @classmethod
    def of(cls, facts: Facts, targets: Array, lengths: Sequence[int], blank: int) -> Labels:
        """Those of a call."""
        return cls(facts, targets, lengths, blank, np.cumsum([0, *lengths]))

    def some(self, item: int, first: int, end: int) -> AnyArray:
        """Some labels of an item."""
        start = int(self.starts[item])
        matrix = len(self.targets.shape) == MATRIX
        index = (item, slice(first, end)) if matrix else slice(start + first, start + end)
        return np.asarray(self.facts.read(self.targets, index), np.int64)


class StateRange(NamedTuple):
    """Some of the states, of each item of a group."""

    states: slice
    numbers: AnyArray
    classes: AnyArray
    """The class of each; blank after the item's end."""
    inside: AnyArray
    """Whether the item has it."""
    last: AnyArray
    """Whether it is one of the item's last two."""
    onward: AnyArray
    """Whether a path may go from it to the state after the next."""
    entered: AnyArray
    """Whether a path may come to it from the state before the one before."""


class States:
    """The states of items side by side, up to a number that is the same for all of them."""

    def __init__(self, labels: Labels, items: slice, width: int) -> None:
        self._labels, self._items = labels, items
        self._counts = np.array(labels.lengths[items], np.int64)[:, np.newaxis]
        self._cuts = [states for (states,) in cut((width,), BLOCK)]
        self._whole = [self._piece(self._cuts[0])] if len(self._cuts) == 1 else []

    def pieces(self, *, backwards: bool = False) -> Iterator[StateRange]:
        """All of them, the first ones first."""
        cuts = reversed(self._cuts) if backwards else self._cuts
        yield from self._whole or map(self._piece, cuts)

    def _piece(self, states: slice) -> StateRange:
        blank = self._labels.blank
        more = self._classes(states.start - 2, states.stop + 2)
        behind, classes, ahead = more[:, :-4], more[:, 2:-2], more[:, 4:]
        numbers, ends = np.arange(states.start, states.stop), 2 * self._counts
        inside = numbers <= ends
        last = inside & (numbers >= ends - 1)
        onward = (classes != blank) & (classes != ahead)
        return StateRange(states, numbers, classes, inside, last, onward, classes != behind)

    def _classes(self, start: int, stop: int) -> AnyArray:
        """The classes of states: every second one is a label, the others are blank."""
        classes = np.full((len(self._counts), stop - start), self._labels.blank)
        for row, count in enumerate(self._counts[:, 0].tolist()):
            first, end = max(start, 0) // 2, min(stop // 2, count)
            if first < end:
                places = slice(2 * first + 1 - start, 2 * end - start, 2)
                item = row + self._items.start
                classes[row, places] = self._labels.some(item, first, end)
        return classes


def shifted(states: AnyArray, some: slice, by: int) -> AnyArray:
    """The values a number of states later in each row, or earlier; -inf beyond both ends."""
    first, end = some.start + by, some.stop + by
    part = states[:, max(first, 0) : max(end, 0)]
    result = np.full((len(states), end - first), -np.inf)
    lead = max(-first, 0)
    result[:, lead : lead + part.shape[1]] = part
    return result
