"""How the work of a call is cut into blocks, by what its operator's ``over`` declares.

Formulas see arrays, never blocks: inputs come to them rounded to the kernel dtype, widened, and
contiguous, since NumPy's functions may round strided arrays otherwise than contiguous ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from npucall.dtypes import BOOL
from npucall.errors import NpucallError
from npucall.operators.spec import AtOnce, Elementwise, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from npucall.dtypes import AnyArray
    from npucall.operators.prepare import Prepared
    from npucall.tensors import Shape

Index: TypeAlias = "tuple[slice, ...]"


def work_of(
    call: Prepared, inputs: Mapping[str, AnyArray], outputs: Mapping[str, AnyArray], *, exact: bool
) -> Work:
    """The work of a call; ``exact`` computes and rounds in float64 throughout."""
    return _KINDS[type(call.operator.over)](call, inputs, outputs, exact=exact)


def cut(shape: Shape, limit: int) -> Iterator[Index]:
    """Cuts a shape into blocks of at most ``limit`` elements, in row-major order."""
    if 0 in shape:  # the other extents may be as large as they like
        return
    axis, inner = len(shape), 1
    while axis and inner * shape[axis - 1] <= limit:
        axis -= 1
        inner *= shape[axis]
    rest = tuple(slice(0, extent) for extent in shape[axis:])
    if not axis:
        yield rest
        return
    step = max(limit // max(inner, 1), 1)
    last = shape[axis - 1]
    cuts = [slice(start, min(start + step, last)) for start in range(0, last, step)]
    for outer in product(*(range(extent) for extent in shape[: axis - 1])):
        for piece in cuts:
            yield (*(slice(i, i + 1) for i in outer), piece, *rest)


class Work(ABC):
    """One call while its blocks are computed, in the order in which ``cuts`` gives them.

    Its operator has a formula; only devices of their own run those that have none.
    """

    def __init__(
        self,
        call: Prepared,
        inputs: Mapping[str, AnyArray],
        outputs: Mapping[str, AnyArray],
        *,
        exact: bool,
    ) -> None:
        self.call = call
        self.kernel = np.dtype(np.float64) if exact else call.kernel_dtype.numpy  # type: ignore[union-attr]
        self.whole = replace(call.whole, dtype=self.kernel) if exact else call.whole
        self.inputs = {
            p.name: inputs[p.name] if p.read else np.zeros((), self.kernel)
            for p in call.operator.inputs
            if p.name in call.inputs
        }
        self.outputs = list(outputs.values())

    @abstractmethod
    def cuts(self, limit: int) -> Iterator[Index]:
        """The blocks, of about ``limit`` elements."""

    @abstractmethod
    def compute(self, index: Index) -> None:
        """Computes one block."""

    def finish(self) -> None:  # noqa: B027  # most have nothing left
        """Does what is left when all blocks are computed."""

    def formula(self, blocks: Mapping[str, AnyArray]) -> list[AnyArray]:
        """The formula's results on blocks of the inputs, each rounded to the kernel dtype."""
        arguments = {name: self._ready(name, block) for name, block in blocks.items()}
        call = self.call
        try:
            answer: Any = call.operator.formula(  # type: ignore[misc]
                self.whole, **arguments, **call.absent, **call.attributes
            )
        except NpucallError as error:  # of values, which no rule sees
            error.details.setdefault("operator", call.operator.name)
            error.details.setdefault("phase", "run")
            raise
        results = answer if isinstance(answer, tuple) else (answer,)
        return [r if r.dtype == self.kernel else r.astype(self.kernel) for r in results]

    def _ready(self, name: str, block: AnyArray) -> AnyArray:
        if block.dtype == BOOL.numpy:
            block = block.view(np.uint8) != 0  # any byte but 0 is true
        if name in self.call.operator.as_is:
            return np.ascontiguousarray(block).reshape(block.shape)
        if block.dtype != self.kernel:
            block = block.astype(self.kernel)
        return np.ascontiguousarray(block, self.whole.dtype).reshape(block.shape)


class _ElementwiseWork(Work):
    """Blocks of a shape to which all inputs broadcast, summed to an input's shape if declared."""

    def __init__(self, call: Prepared, *arrays: Mapping[str, AnyArray], exact: bool) -> None:
        super().__init__(call, *arrays, exact=exact)
        (self.output,) = self.outputs
        over = call.operator.over
        space = call.whole.shapes[over.space]  # type: ignore[union-attr]
        if self.output.shape == space and _all_dense(space, [*self.inputs.values(), self.output]):
            self.inputs = {n: a.reshape(-1) if a.ndim else a for n, a in self.inputs.items()}
            self.output, space = self.output.reshape(-1), (prod(space),)
        self.space = space
        self.inputs = {name: _aligned(a, len(space)) for name, a in self.inputs.items()}
        self.sums = None
        if self.output.shape != space:
            self.sums = np.zeros(_aligned(self.output, len(space)).shape, np.float64)
            extents: Shape = self.sums.shape
            self.axes = tuple(axis for axis, extent in enumerate(extents) if extent == 1)

    def cuts(self, limit: int) -> Iterator[Index]:
        return cut(self.space, limit)

    def compute(self, index: Index) -> None:
        (result,) = self.formula({n: a[_within(a, index)] for n, a in self.inputs.items()})
        if self.sums is None:
            np.copyto(self.output[index], result, casting="unsafe")
            return
        stretched = np.broadcast_to(result, tuple(piece.stop - piece.start for piece in index))
        self.sums[_within(self.sums, index)] += stretched.sum(self.axes, np.float64, keepdims=True)

    def finish(self) -> None:
        if self.sums is not None:
            rounded = self.sums.astype(self.kernel).reshape(self.output.shape)
            np.copyto(self.output, rounded, casting="unsafe")


class _RowsWork(Work):
    """Blocks of complete rows along a dimension, which the formula sees as last axis."""

    def __init__(self, call: Prepared, *arrays: Mapping[str, AnyArray], exact: bool) -> None:
        super().__init__(call, *arrays, exact=exact)
        dim = call.attributes[call.operator.over.dim]  # type: ignore[union-attr]
        self.inputs = {name: _rows(array, dim) for name, array in self.inputs.items()}
        self.outputs = [_rows(array, dim) for array in self.outputs]
        self.longest = max(a.shape[-1] for a in [*self.outputs, *self.inputs.values()])

    def cuts(self, limit: int) -> Iterator[Index]:
        return cut(self.outputs[0].shape[:-1], max(limit // max(self.longest, 1), 1))

    def compute(self, index: Index) -> None:
        results = self.formula({name: array[index] for name, array in self.inputs.items()})
        for output, result in zip(self.outputs, results, strict=True):
            np.copyto(output[index], result, casting="unsafe")


class _AtOnceWork(Work):
    """Everything at once, in one turn."""

    def cuts(self, limit: int) -> Iterator[Index]:
        del limit
        yield ()

    def compute(self, index: Index) -> None:
        del index
        for output, result in zip(self.outputs, self.formula(self.inputs), strict=True):
            np.copyto(output, result, casting="unsafe")


_KINDS: dict[type, type[Work]] = {
    Elementwise: _ElementwiseWork,
    Rows: _RowsWork,
    AtOnce: _AtOnceWork,
}


def _rows(array: AnyArray, dim: int) -> AnyArray:
    """A view with the dimension as last axis; rank 0 becomes rank 1."""
    return np.moveaxis(array.reshape(1) if array.ndim == 0 else array, dim, -1)


def _aligned(array: AnyArray, rank: int) -> AnyArray:
    """The array with leading axes of extent 1 up to a rank."""
    return array[(np.newaxis,) * (rank - array.ndim)]


def _within(array: AnyArray, index: Index) -> Index:
    """A block's index for an array that may have extent 1 where the space has more."""
    return tuple(
        slice(None) if n == 1 else piece for n, piece in zip(array.shape, index, strict=True)
    )


def _all_dense(space: Shape, arrays: Iterable[AnyArray]) -> bool:
    """Whether all arrays are row-major of the space's shape, or of rank 0: one axis will do."""
    return all(
        array.ndim == 0 or (array.shape == space and array.flags.c_contiguous) for array in arrays
    )
