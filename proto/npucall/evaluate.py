"""A prepared call and its arrays become outputs, block by block.

The same code computes in the server's CPU device and in the client's ``local:``. Results have the
same bits for any number of threads and any path that the arrays took, since the edges of blocks
depend on shapes alone and sums are taken in the order of blocks.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from npucall.dtypes import BOOL, BY_NUMPY, DOUBLE, FLOAT
from npucall.operators import CATALOGUE
from npucall.operators.prepare import Prepared, prepare
from npucall.operators.spec import Call
from npucall.products import DEFAULT_SOC, product_of
from npucall.tensors import TensorSpec, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from npucall.dtypes import AnyArray
    from npucall.operators.spec import Operator, P, R
    from npucall.tensors import Buffer, Shape

Turn: TypeAlias = "Callable[[], AbstractContextManager[object]]"
"""Waits for the right to compute one block, and holds it."""

BLOCK = 1 << 16
"""Elements of a block: a few arrays of float32 of this length stay in a core's cache."""


def run(call: Prepared, storages: Mapping[str, Buffer], turn: Turn = nullcontext) -> list[Buffer]:
    """Computes a call from its storages; answers one storage for each output, in their order.

    A storage that the call sent for an output is copied (received bytes cannot be written) and
    written through its view, so that its gaps come back as they were.
    """
    inputs = {n: view(spec, storages[n]) for n, spec in call.inputs.items() if n in storages}
    answers: list[Buffer] = []
    targets: dict[str, AnyArray] = {}
    for name, spec in call.outputs.items():
        sent = storages.get(name)
        answer = bytearray(spec.storage_bytes) if sent is None else bytearray(sent)
        answers.append(answer)
        targets[name] = view(spec, answer)
    evaluate(call, inputs, targets, turn)
    return answers


def evaluate(  # noqa: PLR0913  # two of them are for tests
    call: Prepared,
    inputs: Mapping[str, AnyArray],
    outputs: Mapping[str, AnyArray],
    turn: Turn = nullcontext,
    *,
    block: int = BLOCK,
    exact: bool = False,
) -> None:
    """Computes a call into ``outputs``, arrays of the shapes and dtypes that it resolved to.

    Inputs are rounded to the kernel dtype, widened to float32 and broadcast; results are rounded
    to the kernel dtype *before* they are summed, then to the output's dtype, to nearest even. Sums
    accumulate in float64. ``exact`` computes and rounds in float64 throughout.
    """
    if call.done:
        for array in outputs.values():
            array[...] = 0
        return
    steps = _Elementwise(call, inputs, outputs, exact=exact)
    for index in blocks(steps.space, block):
        with turn(), np.errstate(all="ignore"):
            steps.compute(index)
    steps.finish()


def compute(operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Runs one operator on NumPy arrays in this process, by the rules of the default product.

    Here, and only here, float64 arrays are accepted: they pass the rules as FLOAT, and everything
    is computed in float64, so that a test can ask for exact numbers.
    """
    given = operator.bind(args, kwargs)
    names = [p.name for p in operator.inputs if given.get(p.name) is not None]
    tensors = {name: np.asarray(given[name]) for name in names}
    exact = any(array.dtype == np.float64 for array in tensors.values())
    specs = {name: _spec(name, array) for name, array in tensors.items()}
    call = Call(operator, {**given, **specs}, tuple(tensors))
    prepared = prepare(call, product_of(DEFAULT_SOC), CATALOGUE)
    outputs = {
        name: np.empty(spec.shape, np.float64 if exact else spec.dtype.numpy)
        for name, spec in prepared.outputs.items()
    }
    evaluate(prepared, tensors, outputs, exact=exact)
    results: Any = tuple(outputs.values())
    answer: R = results if len(results) > 1 else results[0]
    return answer


def blocks(shape: Shape, limit: int) -> Iterator[tuple[slice, ...]]:
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
        for cut in cuts:
            yield (*(slice(i, i + 1) for i in outer), cut, *rest)


class _Elementwise:
    """One call of an elementwise operator while its blocks are computed."""

    def __init__(
        self,
        call: Prepared,
        inputs: Mapping[str, AnyArray],
        outputs: Mapping[str, AnyArray],
        *,
        exact: bool,
    ) -> None:
        over = call.operator.over
        self.call = call
        self.kernel = np.dtype(np.float64) if exact else call.kernel_dtype.numpy
        self.formula_dtype = self.kernel if exact or not over.widen else FLOAT.numpy
        self.whole = replace(call.whole, dtype=self.formula_dtype) if exact else call.whole
        (self.output,) = outputs.values()
        space = call.whole.shapes[over.space]
        arrays = {
            p.name: inputs[p.name] if p.read else np.zeros((), self.kernel)
            for p in call.operator.inputs
        }
        if self.output.shape == space and _all_dense(space, [*arrays.values(), self.output]):
            arrays = {name: a.reshape(-1) if a.ndim else a for name, a in arrays.items()}
            self.output, space = self.output.reshape(-1), (prod(space),)
        self.space = space
        rank = len(space)
        self.inputs = {name: _aligned(array, rank) for name, array in arrays.items()}
        self.sums = None
        if self.output.shape != space:
            self.sums = np.zeros(_aligned(self.output, rank).shape, np.float64)
            self.axes = tuple(a for a in range(rank) if self.sums.shape[a] == 1)

    def compute(self, index: tuple[slice, ...]) -> None:
        arguments = {name: self._block(array, index) for name, array in self.inputs.items()}
        result = self.call.operator.formula(self.whole, **arguments, **self.call.attributes)
        if result.dtype != self.kernel:
            result = result.astype(self.kernel)
        if self.sums is None:
            np.copyto(self.output[index], result, casting="unsafe")
            return
        stretched = np.broadcast_to(result, tuple(cut.stop - cut.start for cut in index))
        self.sums[_cut(self.sums, index)] += stretched.sum(self.axes, np.float64, keepdims=True)

    def finish(self) -> None:
        if self.sums is not None:
            with np.errstate(all="ignore"):
                rounded = self.sums.astype(self.kernel).reshape(self.output.shape)
                np.copyto(self.output, rounded, casting="unsafe")

    def _block(self, array: AnyArray, index: tuple[slice, ...]) -> AnyArray:
        """A block of an input in the formula's dtype, contiguous.

        NumPy's functions may round strided arrays otherwise than contiguous ones.
        """
        block = array[_cut(array, index)]
        if block.dtype == BOOL.numpy:
            block = block.view(np.uint8) != 0  # any byte but 0 is true
        if block.dtype != self.kernel:
            block = block.astype(self.kernel)
        return np.ascontiguousarray(block, self.formula_dtype)


def _aligned(array: AnyArray, rank: int) -> AnyArray:
    """The array with leading axes of extent 1 up to a rank."""
    return array[(np.newaxis,) * (rank - array.ndim)]


def _cut(array: AnyArray, index: tuple[slice, ...]) -> tuple[slice, ...]:
    """A block's index for an array that may have extent 1 where the space has more."""
    return tuple(slice(None) if n == 1 else cut for n, cut in zip(array.shape, index, strict=True))


def _all_dense(space: Shape, arrays: Iterable[AnyArray]) -> bool:
    """Whether all arrays are row-major of the space's shape, or of rank 0: one axis will do."""
    return all(
        array.ndim == 0 or (array.shape == space and array.flags.c_contiguous) for array in arrays
    )


def _spec(name: str, array: AnyArray) -> TensorSpec:
    dtype = BY_NUMPY[array.dtype]
    return TensorSpec(FLOAT if dtype is DOUBLE else dtype, array.shape, name=name)
