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

from npucall.compute.operands import Operand, is_fit, rounded, store, within
from npucall.declare.over import Elementwise, Rows
from npucall.errors import NpucallError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npucall.compute.layouts import Layout
    from npucall.compute.operands import Index
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


def cut(shape: Shape, limit: int) -> Sequence[tuple[slice, ...]]:
    """Cuts a shape into blocks of at most ``limit`` elements, in row-major order."""
    return _Cuts(shape, limit)


class _Cuts(Sequence["tuple[slice, ...]"]):
    """The blocks of a shape. None is made before it is asked for: there may be millions."""

    def __init__(self, shape: Shape, limit: int) -> None:
        axis, inner = len(shape), 1
        while axis and inner * shape[axis - 1] <= limit:
            axis -= 1
            inner *= shape[axis]
        self._rest = tuple(slice(0, extent) for extent in shape[axis:])
        self._cut = shape[axis - 1 : axis]
        """The extent that is cut into pieces; none where everything is one block."""
        self._outer = shape[: axis - 1] if axis else ()
        self._step = max(limit // max(inner, 1), 1)
        self._pieces = -(-self._cut[0] // self._step) if self._cut else 1
        self._count = 0 if 0 in shape else prod(self._outer) * self._pieces

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        row, piece = divmod(number, self._pieces)
        outer = []
        for extent in reversed(self._outer):
            row, place = divmod(row, extent)
            outer.append(slice(place, place + 1))
        start = piece * self._step
        pieces = (slice(start, min(start + self._step, extent)) for extent in self._cut)
        return (*reversed(outer), *pieces, *self._rest)


def complete(error: NpucallError, call: Prepared) -> None:
    """Adds what an error about values, which no rule sees, does not know itself."""
    error.details.setdefault("operator", call.operator.name)
    error.details.setdefault("phase", "run")


class Work(ABC):
    """What is to be done for a call, wherever the memory of its tensors is.

    Blocks may be computed in any order and at the same time. Its operator has a formula; only
    devices of their own run those that have none.
    """

    block = 3 << 15
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

    def on(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray]
    ) -> Callable[[Index], AnyArray | None]:
        """What computes a block into the targets, or answers what has to be added to them."""
        return partial(self._compute, inputs, targets)

    def add(  # noqa: B027  # most have nothing to add
        self, targets: Sequence[AnyArray], part: AnyArray, index: Index
    ) -> None:
        """Adds what a block answered; called in the order of the blocks, once at a time."""

    def finish(  # noqa: B027  # most have nothing left
        self, targets: Sequence[AnyArray], outputs: Sequence[AnyArray]
    ) -> None:
        """Makes the outputs of targets that are not the outputs, when all blocks are done."""

    def _compute(
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray], index: Index
    ) -> AnyArray | None:
        for target, result in zip(targets, self._results(inputs, index), strict=True):
            store(target if index is ... else target[index], result, self.kernel)
        return None

    def _results(self, inputs: Sequence[AnyArray], index: Index) -> Sequence[AnyArray]:
        """The formula's results on blocks of the inputs."""
        blocks = {
            operand.name: operand.block(array, index)
            for operand, array in zip(self.operands, inputs, strict=True)
        }
        try:
            answer: Any = self._formula(self._facts, **blocks)
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
        self, inputs: Sequence[AnyArray], targets: Sequence[AnyArray], index: Index
    ) -> AnyArray | None:
        del targets
        (result,) = self._results(inputs, index)
        extents = self.space if index is ... else tuple(p.stop - p.start for p in index)
        stretched = np.broadcast_to(rounded(result, self.kernel), extents)
        return stretched.sum(self._axes, np.float64, keepdims=True)

    def add(self, targets: Sequence[AnyArray], part: AnyArray, index: Index) -> None:
        (sums,) = targets
        sums[within(self._extents, index)] += part

    def finish(self, targets: Sequence[AnyArray], outputs: Sequence[AnyArray]) -> None:
        for sums, output in zip(targets, outputs, strict=True):
            store(output, sums.reshape(output.shape), self.kernel)


class _RowsWork(Work):
    """Blocks of complete rows along a dimension, which the formula sees as last axis."""

    def _arrange(self) -> None:
        dim = self.call.attributes[self.call.operator.over.dim]  # type: ignore[union-attr]
        self.inputs = {name: layout.rows(dim) for name, layout in self.inputs.items()}
        self.outputs = [layout.rows(dim) for layout in self.outputs]
        self.space = self.outputs[0].shape[:-1]
        layouts = [*self.outputs, *self.inputs.values()]
        self._longest = max(1, *(layout.shape[-1] for layout in layouts))

    def cuts(self, limit: int | None = None) -> Sequence[Index]:
        return super().cuts(max((limit or self.block) // self._longest, 1))


class _AtOnceWork(Work):
    """Everything at once, in one turn."""

    def _arrange(self) -> None:
        self.space = ()


_ALL = (...,)


def _kind(call: Prepared, outputs: Mapping[str, Layout]) -> type[Work]:
    over = call.operator.over
    if not isinstance(over, Elementwise):
        return _RowsWork if isinstance(over, Rows) else _AtOnceWork
    (output,) = outputs.values()
    return _ElementwiseWork if output.shape == call.facts.shapes[over.space] else _SummedWork


def _is_flat(layout: Layout, space: Shape) -> bool:
    """Whether one axis will do for an input: it is row-major of the space's shape, or a number."""
    return prod(layout.shape) == 1 or (layout.shape == space and layout.dense)
