"""How the work of a call is cut into blocks, by what its operator's ``over`` declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from npucall.compute.blas import one_thread
from npucall.compute.conversions import converted
from npucall.compute.helpers import Sharing
from npucall.compute.layouts import Layout
from npucall.compute.operands import Index, InputReader, Writing, is_fit, rounded, store, within
from npucall.compute.rows import LongRowsWork, RowsWork
from npucall.compute.sums import summed
from npucall.compute.work import Work
from npucall.declare.call import parameter_of
from npucall.declare.cuts import cut
from npucall.declare.domain import Elementwise, Rows
from npucall.declare.facts import Facts
from npucall.declare.prepare import Prepared
from npucall.dtypes import AnyArray
from npucall.tensors import Shape

_SUMMED_IN = {"i": np.int64, "u": np.int64, "b": np.int64, "c": np.complex128}
"""The dtype for sums, by the kind of the kernel dtype; float64 for floats."""
_BLOCK_OF_ONE, _BLOCK_OF_MORE = 1 << 20, 1 << 16
"""Elements of a block that is summed: of one input, which is only read, and of a formula of more.
"""
_WORTH_TWO = 1 << 27
"""Products of two numbers that one thread adds up in the time that it takes to wake another one.
"""
_WORTH_IT = 1 << 12
"""From so many elements on, copying a result costs more than checking whether it is needed."""


def work_of(
    call: Prepared, inputs: Mapping[str, Layout], outputs: Mapping[str, Layout], *, exact: bool
) -> Work:
    """The work of a call; ``exact`` computes and rounds in float64 throughout."""
    return _kind(call, outputs)(call, inputs, outputs, exact=exact)


class _ElementwiseWork(Work):
    """Blocks of a shape to which all inputs broadcast."""

    one_step = True

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
        formula, facts, kernel = self._formula, self.facts, self.kernel
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

        This also leaves little Python between its steps, for which the threads of one call wait for
        each other.
        """
        dtypes = {self.kernel, *(layout.dtype for layout in self.outputs)}
        return (
            self.flat
            and prod(self.space) >= _WORTH_IT
            and dtypes == {self.facts.dtype}
            and all(operand.is_plain for operand in self.operands)
        )


class _SummedWork(_ElementwiseWork):
    """The same with sums, in the widest dtype of their kind.

    The bits of a sum depend only on the edges and the order of blocks.
    """

    one_step = False

    def _arrange(self) -> None:
        super()._arrange()
        over: Any = self.call.operator.over
        self._factor = over.factor
        self.block = _BLOCK_OF_ONE if len(self.inputs) == 1 else _BLOCK_OF_MORE
        kept = self.call.facts.shapes[over.sum_to]
        self._extents = (1,) * (len(self.space) - len(kept)) + kept
        self._in = _SUMMED_IN.get(self.kernel.kind, np.float64)
        self._axes = tuple(axis for axis, extent in enumerate(self._extents) if extent == 1)

    def cuts(self, limit: int | None = None) -> Sequence[Index]:
        return super().cuts(limit if self._factor is None else None)

    def begin(self, outputs: Sequence[AnyArray]) -> Sequence[AnyArray]:
        del outputs
        return [np.zeros(self._extents, self._in)]

    def _compute(
        self,
        inputs: Sequence[AnyArray],
        targets: Sequence[AnyArray],
        facts: Facts,
        index: Index,
    ) -> AnyArray | None:
        del targets
        (result,) = self.results(facts, self._blocks(inputs, index))
        extents = self.space if index is ... else tuple(p.stop - p.start for p in index)
        if result.shape != extents:
            result = np.broadcast_to(result, extents)
        if self._factor is not None:
            return summed(result, self._axes, self._in)
        return rounded(result, self.kernel).sum(self._axes, self._in, keepdims=True)

    def add(self, targets: Sequence[AnyArray], part: AnyArray, index: Index) -> None:
        (sums,) = targets
        sums[within(self._extents, index)] += part

    def finish(
        self,
        targets: Sequence[AnyArray],
        outputs: Sequence[AnyArray],
        pause: Callable[[], None],
    ) -> None:
        (sums,), (output,) = targets, outputs
        if output.size <= self.block:
            store(output, self._scaled(sums).reshape(output.shape), self.kernel)
            return
        sums = sums.reshape(output.shape)
        for index in cut(output.shape, self.block):
            pause()
            store(output[index], self._scaled(sums[index]), self.kernel)

    def _scaled(self, sums: AnyArray) -> AnyArray:
        if self._factor is None:
            return sums
        scaled: AnyArray = sums * self._factor(self.facts, self.call.attributes)
        return scaled


class _AtOnceWork(Work):
    """Everything at once, in one turn; the formula lets others in now and then."""

    def _arrange(self) -> None:
        self.space = ()
        over: Any = self.call.operator.over
        is_small = over.computation(self.call) < _WORTH_TWO
        self._threads = one_thread if is_small else nullcontext

    def passes(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray], sharing: Sharing
    ) -> Iterator[Callable[[Index], AnyArray | None]]:
        yield partial(self._run, inputs, targets, sharing)

    def _run(
        self,
        inputs: Sequence[AnyArray],
        targets: Sequence[AnyArray],
        sharing: Sharing,
        _: Index,
    ) -> None:
        pairs = zip(self.operands, inputs, strict=True)
        read = self.call.in_lists({o.name: InputReader(o, array) for o, array in pairs})
        own = {output.name for output in self.call.operator.outputs if output.as_is}
        written = {
            name: Writing(target, target.dtype if parameter_of(name) in own else self.kernel)
            for name, target in zip(self._names, targets, strict=True)
        }
        facts = replace(
            self.facts, pause=sharing.pause, outputs=written, shared=sharing.each,
            narrow=None if self.kernel == self.facts.dtype else self._narrowed,
        )  # fmt: skip
        with self._threads():
            results: Sequence[Any] = self.results(facts, read)
        for name, result in self._one_by_one(results):
            writing = written.get(name)
            if writing is None:
                continue
            if result is not writing:
                writing[...] = np.asarray(result)
            writing.end(name)

    def _one_by_one(self, results: Sequence[Any]) -> Iterator[tuple[str, Any]]:
        """The results by name; None for a list stands for None for each of its tensors."""
        for output, result in zip(self.call.operator.outputs, results, strict=True):
            members = self.call.lists.get(output.name)
            if members is None:
                yield output.name, result
            elif result is not None:
                yield from zip(members, result, strict=True)

    def _narrowed(self, array: AnyArray) -> AnyArray:
        return converted(rounded(array, self.kernel), self.facts.dtype)


def _kind(call: Prepared, outputs: Mapping[str, Layout]) -> type[Work]:
    over = call.operator.over
    if isinstance(over, Rows):
        return LongRowsWork if over.divisible and over.longest(call) > over.whole else RowsWork
    if not isinstance(over, Elementwise):
        return _AtOnceWork
    (output,) = outputs.values()
    return _ElementwiseWork if output.shape == call.facts.shapes[over.space] else _SummedWork


def _is_flat(layout: Layout, space: Shape) -> bool:
    """Whether one axis will do for an input: it is row-major of the space's shape, or a number."""
    return prod(layout.shape) == 1 or (layout.shape == space and layout.dense)
