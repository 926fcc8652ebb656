"""Work on complete rows, or on pieces of rows that are long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute.operands import within
from npucall.compute.work import Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall.compute.layouts import Layout
    from npucall.compute.operands import Index
    from npucall.dtypes import AnyArray


class RowsWork(Work):
    """Blocks of complete rows along a dimension, which the formula sees as last axis."""

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
    """Blocks of pieces of rows: first sums of all rows are taken, where the formula wants them.

    They are sums, in float64, of the sums of the pieces. The edges of pieces depend on the shape
    alone.
    """

    def cuts(self, limit: int | None = None) -> Sequence[Index]:
        del limit
        return Work.cuts(self)

    def begin(self, outputs: Sequence[AnyArray]) -> Sequence[AnyArray]:
        over: Any = self.call.operator.over
        rows = self.space[:-1] if over.sum_of else ()
        return [np.zeros((*rows, 1), np.float64), *outputs]

    def passes(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray], pause: Callable[[], None]
    ) -> Iterator[Callable[[Index], AnyArray | None]]:
        del pause
        over: Any = self.call.operator.over
        sums, *outputs = targets
        if over.sum_of:
            yield partial(self._sum, over.sum_of, inputs)
        yield partial(self._write, inputs, outputs, sums.astype(self._facts.dtype))

    def add(self, targets: Sequence[AnyArray], part: AnyArray, index: Index) -> None:
        sums = targets[0]
        sums[within(sums.shape, index)] += part

    def _sum(
        self, sum_of: Callable[..., AnyArray], inputs: Sequence[AnyArray], index: Index
    ) -> AnyArray:
        summed = sum_of(*self._blocks(inputs, index).values())
        return summed.sum(-1, keepdims=True)

    def _write(
        self,
        inputs: Sequence[AnyArray],
        outputs: Sequence[AnyArray],
        totals: AnyArray,
        index: Index,
    ) -> AnyArray | None:
        total = totals[within(totals.shape, index)] if totals.ndim > 1 else totals
        return self._compute(inputs, outputs, replace(self._facts, total=total), index)
