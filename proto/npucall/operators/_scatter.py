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

_FEW = 16
"""Rows of one index that are added in turns with those of others; more are summed together first.
"""
_EXACT = 64
"""From so many rows of one index on sums are taken in float64."""
_SHORT = 1 << 16
"""Target rows whose numbers are sorted faster as shorter integers."""
HELD = 40
"""Bytes that are held for each index."""
OF_TARGET = 16
"""And for each target row."""


@dataclass(frozen=True)
class Sorted:
    """Numbers of rows in the order of their indices, and where each target row begins."""

    order: AnyArray
    starts: AnyArray
    """For each target row, and one more at the end."""

    @classmethod
    def of(cls, indices: AnyArray, targets: int) -> Sorted:
        """Of one-dimensional indices, all of which are target rows."""
        keys = indices.astype(np.uint16) if targets <= _SHORT else indices
        order = np.argsort(keys, kind="stable")
        return cls(order, np.searchsorted(indices[order], np.arange(targets + 1)))

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
        """The same, and what the target rows have already.

        Those that get most rows come first: so each turn adds a row to all of a range.
        """
        counts = self.counts(rows)
        exact = start.dtype == np.float32 and counts.max(initial=0) >= _EXACT
        turns = _FEW + 1 - np.minimum(counts, _FEW + 1)
        ranks = np.argsort(turns.astype(np.uint8), kind="stable")
        counts, begins = counts[ranks], self.starts[rows][ranks]
        sums = start[ranks].astype(np.float64 if exact else start.dtype, copy=False)
        many = np.count_nonzero(counts > _FEW)
        step = max(BLOCK // max(start.shape[1], 1), 1)
        for target, begin, count in zip(range(many), begins, counts, strict=False):
            for first in range(begin, begin + count, step):
                some = self.order[first : min(first + step, begin + count)]
                sums[target] += np.add.reduce(read(some), 0, sums.dtype)
        for turn in range(_FEW):
            last = np.count_nonzero(counts > turn)
            if last > many:
                sums[many:last] += read(self.order[begins[many:last] + turn])
        total = np.empty_like(sums)
        total[ranks] = sums
        return total


def each_target(
    facts: Facts, targets: int, width: int, compute: Callable[[slice, slice], None]
) -> None:
    """Computes blocks of target rows; of wide rows pieces of their columns."""
    facts.each(cut((targets, width), BLOCK), lambda block: compute(*block))
