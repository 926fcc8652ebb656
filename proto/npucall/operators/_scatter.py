"""Rows that are added to others, by their indices: what gradients of look-ups have in common.

Of rows g with indices, which may repeat::

    result[w] = sum of g[i] over all i with indices[i] = w

Target rows are computed in blocks, which do not depend on each other; the rows of each are added in
the order in which they stand, so the bits of a result depend on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import AnyArray

_FEW = 8
"""Rows of one index that are added one by one; more are summed together first."""
_EXACT = 64
"""From so many rows of one index on sums are taken in float64."""
HELD = 40
"""Bytes that are held for each index."""
OF_TARGET = 16
"""And for each target row."""


@dataclass(frozen=True)
class Sorted:
    """Numbers of rows in the order of their indices, and where each target row begins."""

    order: AnyArray
    indices: AnyArray
    """Sorted."""
    starts: AnyArray
    """For each target row, and one more at the end."""

    @classmethod
    def of(cls, indices: AnyArray, targets: int) -> Sorted:
        """Of one-dimensional indices, all of which are target rows."""
        order = np.argsort(indices, kind="stable")
        found = indices[order]
        return cls(order, found, np.searchsorted(found, np.arange(targets + 1)))

    def counts(self, rows: slice) -> AnyArray:
        """How many rows are added to each of some target rows."""
        counts: AnyArray = np.diff(self.starts[rows.start : rows.stop + 1])
        return counts

    def summed(
        self, read: Callable[[AnyArray], AnyArray], rows: slice, width: int, dtype: np.dtype[Any]
    ) -> AnyArray:
        """The sums of some target rows; ``read`` gives rows by their numbers."""
        return self.added(np.zeros((rows.stop - rows.start, width), dtype), read, rows)

    def added(self, start: AnyArray, read: Callable[[AnyArray], AnyArray], rows: slice) -> AnyArray:
        """The same, and what the target rows have already."""
        exact = start.dtype == np.float32 and self.counts(rows).max(initial=0) >= _EXACT
        total = start.astype(np.float64 if exact else start.dtype)
        step = max(BLOCK // max(start.shape[1], 1), 1)
        first, last = (int(self.starts[at]) for at in (rows.start, rows.stop))
        for begin in range(first, last, step):
            places = slice(begin, min(begin + step, last))
            _add(total, self.indices[places] - rows.start, read(self.order[places]))
        return total


def each_target(
    facts: Facts, targets: int, width: int, compute: Callable[[slice, slice], None]
) -> None:
    """Computes blocks of target rows; of wide rows pieces of their columns."""
    facts.each(cut((targets, width), BLOCK), lambda block: compute(*block))


def _add(total: AnyArray, targets: AnyArray, rows: AnyArray) -> None:
    """Adds rows to those that sorted targets name."""
    begins = np.flatnonzero(np.r_[True, targets[1:] != targets[:-1]])
    lengths = np.diff(np.r_[begins, len(targets)])
    for turn in range(min(int(lengths.max()), _FEW)):
        here = begins[(lengths > turn) & (lengths <= _FEW)] + turn
        total[targets[here]] += rows[here]
    for begin in np.flatnonzero(lengths > _FEW):
        piece = rows[begins[begin] : begins[begin] + lengths[begin]]
        total[targets[begins[begin]]] += np.add.reduce(piece, 0, total.dtype)
