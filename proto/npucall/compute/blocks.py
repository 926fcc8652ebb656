"""How the work of a call is cut into blocks, by what its operator's ``over`` declares.

All that follows from the call alone is found when its ``Work`` is made, once for all its runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.compute.operands import Operand, Reading, Writing, is_fit, rounded, store, within
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.over import Elementwise, Rows
from npucall.errors import NpucallError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from npucall.compute.layouts import Layout
    from npucall.compute.operands import Index
    from npucall.declare.facts import Facts
    from npucall.declare.prepare import Prepared
    from npucall.dtypes import AnyArray
    from npucall.tensors import Shape

_FEW = 1 << 8
"""Blocks that are kept cut."""
_WORTH_IT = 1 << 12
"""Elements from which on to copy a result costs more than to find out whether it need be."""


def work_of(
    call: Prepared, inputs: Mapping[str, Layout], outputs: Mapping[str, Layout], *, exact: bool
) -> Work:
    """The work of a call; ``exact`` computes and rounds in float64 throughout."""
    return _kind(call, outputs)(call, inputs, outputs, exact=exact)


def complete(error: NpucallError, call: Prepared) -> None:
    """Adds what an error about values, which no rule sees, does not know itself."""
    error.details.setdefault("operator", call.operator.name)
    error.details.setdefault("phase", "run")


class Work(ABC):
    """What is to be done for a call, wherever the memory of its tensors is.

    Blocks may be computed in any order and at the same time. Its operator has a formula; only
    devices of their own run those that have none.
    """

    block = BLOCK
    """Most elements of a block: a few arrays of float32 of this length stay near the core."""
    space: Shape
    """What is cut. Arrays with extent 1 where it has more belong to several blocks."""
    flat = False
    """Whether a range of the elements of dense inputs, and numbers, give that range of a dense
    output: then any range can be computed by itself."""

    def __init__(
        self,
        call: Prepared,
        inputs: Mapping[str, Layout],
        outputs: Mapping[str, Layout],
        *,
        exact: bool,
    ) -> None:
        self.call = call
        self.kernel = np.dtype(np.float64) if exact else call.kernel_dtype.numpy  # type: ignore[union-attr]
        facts = replace(call.facts, dtype=self.kernel) if exact else call.facts
        given = [p for p in call.operator.inputs if p.name in call.inputs]
        self.inputs = {p.name: inputs[p.name] for p in given if p.read}
        self.outputs = list(outputs.values())
        self._names = list(outputs)
        self._arrange()
        self.operands = [
            Operand(p.name, self.inputs[p.name], () if p.as_is else (self.kernel, facts.dtype))
            for p in given
            if p.read
        ]
        unread = np.zeros((1,) * len(self.space), facts.dtype)
        formula: Any = call.operator.formula
        self._facts = facts
        self._formula = partial(
            formula,
            **{p.name: unread for p in given if not p.read},
            **call.absent,
            **call.attributes,
        )

    @abstractmethod
    def _arrange(self) -> None:
        """Finds the space, and the layouts in which its blocks are cut from inputs and outputs."""

    def cuts(self, limit: int | None = None) -> Sequence[Index]:
        """The blocks, of about ``limit`` elements; of as many as there should be if left out."""
        limit = limit or self.block
        if 0 < prod(self.space) <= limit:
            return _ALL
        blocks = cut(self.space, limit)
        return list(blocks) if len(blocks) <= _FEW else blocks

    def begin(self, outputs: Sequence[AnyArray]) -> Sequence[AnyArray]:
        """Where the blocks of one run go: into the outputs, or into sums of their own."""
        return outputs

    def passes(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray], pause: Callable[[], None]
    ) -> Iterator[Callable[[Index], AnyArray | None]]:
        """What computes a block; where there are several, each computes all of them in its turn.

        It writes into the targets, or answers what has to be added to them. ``pause`` is for what
        computes for long.
        """
        del pause
        yield self.on(inputs, targets)

    def on(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray]
    ) -> Callable[[Index], AnyArray | None]:
        """What computes a block of a work that has one pass."""
        return partial(self._compute, inputs, targets, self._facts)

    def add(  # noqa: B027  # most have nothing to add
        self, targets: Sequence[AnyArray], part: AnyArray, index: Index
    ) -> None:
        """Adds what a block answered; called in the order of the blocks, once at a time."""

    def finish(  # noqa: B027  # most have nothing left
        self, targets: Sequence[AnyArray], outputs: Sequence[AnyArray]
    ) -> None:
        """Makes the outputs of targets that are not the outputs, when all blocks are done."""

    def _compute(
        self,
        inputs: Sequence[AnyArray],
        targets: Sequence[AnyArray],
        facts: Facts,
        index: Index,
    ) -> AnyArray | None:
        results = self._results(facts, self._blocks(inputs, index))
        for target, result in zip(targets, results, strict=True):
            place = target if index is ... else target[within(target.shape, index)]
            store(place, result, self.kernel)
        return None

    def _blocks(self, inputs: Sequence[AnyArray], index: Index) -> dict[str, AnyArray]:
        """A block of each input, as the formula takes it."""
        return {
            operand.name: operand.block(array, index)
            for operand, array in zip(self.operands, inputs, strict=True)
        }

    def _results(self, facts: Facts, given: Mapping[str, Any]) -> Sequence[AnyArray]:
        """The formula's results."""
        try:
            answer: Any = self._formula(facts, **given)
        except NpucallError as error:
            complete(error, self.call)
            raise
        return answer if isinstance(answer, tuple) else (answer,)


class _ElementwiseWork(Work):
    """Blocks of a shape to which all inputs broadcast."""

    def _arrange(self) -> None:
        self.space = self.call.facts.shapes[self.call.operator.over.space]  # type: ignore[union-attr]
        (output,) = self.outputs
        if all(_is_flat(layout, self.space) for layout in self.inputs.values()) and (
            output.shape == self.space and output.dense
        ):
            self.inputs = {name: layout.flat() for name, layout in self.inputs.items()}
            self.outputs = [output.flat()]
            self.space = (prod(self.space),)
            self.flat = True
        rank = len(self.space)
        self.inputs = {name: layout.of_rank(rank) for name, layout in self.inputs.items()}

    def on(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray]
    ) -> Callable[[Index], AnyArray | None]:
        if not (self._is_direct and all(map(is_fit, (*inputs, *targets)))):
            return super().on(inputs, targets)
        (target,) = targets
        formula, facts, kernel = self._formula, self._facts, self.kernel
        pairs = list(zip(self.operands, inputs, strict=True))
        numbers = {operand.name: array for operand, array in pairs if array.shape == (1,)}
        arrays = [(operand.name, array) for operand, array in pairs if array.shape != (1,)]

        def compute(index: Index) -> None:
            place = target[index]
            blocks = {name: array[index] for name, array in arrays}
            result = formula(facts.with_out(place), **numbers, **blocks)
            if result is not place:
                store(place, result, kernel)

        return compute

    @cached_property
    def _is_direct(self) -> bool:
        """Whether nothing has to be converted: then a formula may compute into the output.

        And little Python is left to run between its steps, for which the threads of one call wait
        for each other.
        """
        dtypes = {self.kernel, *(layout.dtype for layout in self.outputs)}
        return (
            self.flat
            and prod(self.space) >= _WORTH_IT
            and dtypes == {self._facts.dtype}
            and all(operand.is_plain for operand in self.operands)
        )


class _SummedWork(_ElementwiseWork):
    """Likewise, and summed to the output's shape, in float64.

    The bits of a sum depend on the edges of blocks and on their order alone.
    """

    block = 1 << 16

    def _arrange(self) -> None:
        super()._arrange()
        self._extents = self.outputs[0].of_rank(len(self.space)).shape
        self._axes = tuple(axis for axis, extent in enumerate(self._extents) if extent == 1)

    def begin(self, outputs: Sequence[AnyArray]) -> Sequence[AnyArray]:
        del outputs
        return [np.zeros(self._extents, np.float64)]

    def _compute(
        self,
        inputs: Sequence[AnyArray],
        targets: Sequence[AnyArray],
        facts: Facts,
        index: Index,
    ) -> AnyArray | None:
        del targets
        (result,) = self._results(facts, self._blocks(inputs, index))
        extents = self.space if index is ... else tuple(p.stop - p.start for p in index)
        stretched = np.broadcast_to(rounded(result, self.kernel), extents)
        return stretched.sum(self._axes, np.float64, keepdims=True)

    def add(self, targets: Sequence[AnyArray], part: AnyArray, index: Index) -> None:
        (sums,) = targets
        sums[within(self._extents, index)] += part

    def finish(self, targets: Sequence[AnyArray], outputs: Sequence[AnyArray]) -> None:
        (sums,), (output,) = targets, outputs
        sums = sums.reshape(output.shape)
        for index in cut(output.shape, self.block):
            store(output[... if index == () else index], sums[index], self.kernel)


class _RowsWork(Work):
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


class _LongRowsWork(_RowsWork):
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
        return summed.sum(-1, np.float64, keepdims=True)

    def _write(
        self,
        inputs: Sequence[AnyArray],
        outputs: Sequence[AnyArray],
        totals: AnyArray,
        index: Index,
    ) -> AnyArray | None:
        total = totals[within(totals.shape, index)] if totals.ndim > 1 else totals
        return self._compute(inputs, outputs, replace(self._facts, total=total), index)


class _AtOnceWork(Work):
    """Everything at once, in one turn, which the formula gives to others now and then."""

    def _arrange(self) -> None:
        self.space = ()

    def passes(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray], pause: Callable[[], None]
    ) -> Iterator[Callable[[Index], AnyArray | None]]:
        yield partial(self._run, inputs, targets, pause)

    def _run(
        self,
        inputs: Sequence[AnyArray],
        targets: Sequence[AnyArray],
        pause: Callable[[], None],
        _: Index,
    ) -> None:
        pairs = zip(self.operands, inputs, strict=True)
        read = {operand.name: Reading(operand, array) for operand, array in pairs}
        written = {
            name: Writing(target, self.kernel)
            for name, target in zip(self._names, targets, strict=True)
        }
        facts = replace(self._facts, pause=pause, outputs=written)
        results: Sequence[Any] = self._results(facts, read)
        for (name, writing), result in zip(written.items(), results, strict=True):
            if result is not writing:
                writing[...] = np.asarray(result)
            writing.end(name)


_ALL = (...,)


def _kind(call: Prepared, outputs: Mapping[str, Layout]) -> type[Work]:
    over = call.operator.over
    if isinstance(over, Rows):
        return _LongRowsWork if over.divisible and over.longest(call) > BLOCK else _RowsWork
    if not isinstance(over, Elementwise):
        return _AtOnceWork
    (output,) = outputs.values()
    return _ElementwiseWork if output.shape == call.facts.shapes[over.space] else _SummedWork


def _is_flat(layout: Layout, space: Shape) -> bool:
    """Whether one axis will do for an input: it is row-major of the space's shape, or a number."""
    return prod(layout.shape) == 1 or (layout.shape == space and layout.dense)
