"""Work on complete rows, or on pieces of rows that are long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from npucall.compute.helpers import Sharing
from npucall.compute.layouts import Layout
from npucall.compute.operands import Index, within
from npucall.compute.work import Work
from npucall.declare.facts import Facts
from npucall.dtypes import AnyArray


class RowsWork(Work):
    """Blocks of complete rows along a dimension, which the formula sees as last axis."""

    one_step = True

    def _arrange(self) -> None:
        over: Any = self.call.operator.over
        dim = self.call.attributes[over.dim]

        def seen(name: str, layout: Layout) -> Layout:
            rows = layout.rows(dim)
            return rows.halves() if name in over.halves else rows

        self.inputs = {name: seen(name, layout) for name, layout in self.inputs.items()}
        self.outputs = list(map(seen, self._names, self.outputs))
        lead = int(self._names[0] in over.halves)
        layouts = [*self.outputs, *self.inputs.values()]
        self._longest = max(1, *(layout.shape[-1] for layout in layouts))
        self.space = (*self.outputs[0].shape[lead:-1], self._longest)

    def cuts(self, limit: int | None = None) -> Sequence[Index]:
        return super().cuts(max(limit or self.block, self._longest))


class LongRowsWork(RowsWork):
    """Blocks of pieces of rows: first maxima and sums of all rows are taken, as the formula wants.

    A sum is that of the sums of the pieces, in float64. The edges of pieces depend on the shape
    alone.
    """

    one_step = False

    def cuts(self, limit: int | None = None) -> Sequence[Index]:
        del limit
        return Work.cuts(self)

    def passes(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray], sharing: Sharing
    ) -> Iterator[Callable[[Index], AnyArray | None]]:
        del sharing
        over: Any = self.call.operator.over
        rows = _Rows()
        if over.max_of:
            parts = self._parts()
            yield partial(self._maximum, over.max_of, inputs, parts)
            rows.maximum = self._of_rows(np.max, parts)
        if over.sum_of:
            parts = self._parts()
            yield partial(self._sum, over.sum_of, inputs, rows, parts)
            rows.total = self._of_rows(np.sum, parts)
        yield partial(self._write, inputs, targets, rows)

    def _parts(self) -> AnyArray:
        """A number for each piece of each row."""
        return np.empty((*self.space[:-1], -(-self._longest // self.block)), np.float64)

    def _of_rows(self, reduce: Callable[..., AnyArray], parts: AnyArray) -> AnyArray:
        """A number for each row, of those of its pieces."""
        with np.errstate(all="ignore"):
            return reduce(parts, -1, keepdims=True).astype(self.facts.dtype)

    def _place(self, index: Index) -> Any:
        """Where the number of a piece stands among ``_parts``."""
        *row, piece = index if index is not ... else (..., slice(0, 1))
        number = piece.start // self.block
        return (*row, slice(number, number + 1))

    def _maximum(
        self, name: str, inputs: Sequence[AnyArray], parts: AnyArray, index: Index
    ) -> None:
        block = self._blocks(inputs, index)[name]
        parts[self._place(index)] = block.max(-1, keepdims=True)

    def _sum(
        self,
        sum_of: Callable[..., AnyArray],
        inputs: Sequence[AnyArray],
        rows: _Rows,
        parts: AnyArray,
        index: Index,
    ) -> None:
        terms = sum_of(rows.facts(self.facts, index), *self._blocks(inputs, index).values())
        parts[self._place(index)] = terms.sum(-1, np.float64, keepdims=True)

    def _write(
        self,
        inputs: Sequence[AnyArray],
        targets: Sequence[AnyArray],
        rows: _Rows,
        index: Index,
    ) -> AnyArray | None:
        return self._compute(inputs, targets, rows.facts(self.facts, index), index)


@dataclass
class _Rows:
    """What earlier passes of a run found of its rows."""

    maximum: AnyArray | None = None
    total: AnyArray | None = None

    def facts(self, facts: Facts, index: Index) -> Facts:
        """Those of the rows of a block among the facts."""
        maximum, total = (
            None if each is None else each[within(each.shape, index)]
            for each in (self.maximum, self.total)
        )
        return replace(facts, maximum=maximum, total=total)
