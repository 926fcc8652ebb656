"""What a formula knows about the call, in addition to its arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeVar

import numpy as np

from npucall.declare.cuts import BLOCK, cut
from npucall.dtypes import AnyArray, Array
from npucall.products import Product
from npucall.tensors import Shape

B = TypeVar("B")
R = TypeVar("R")
_SHORT, _MANY = 32, 256
"""Elements of a short row, and how many rows make it worth while."""


def _go_on() -> None:
    """Nobody waits, and nothing ends the call."""


@dataclass(eq=False, slots=True)
class Facts:
    """Facts of the whole call for a formula that sees only a block of it. Never changed."""

    shapes: Mapping[str, Shape]
    """Shapes of the tensors as passed, and those that the rules found."""
    dtype: np.dtype[Any]
    """What the formula computes in; factors come in it."""
    out: AnyArray | None = None
    """The place of the result, if it can be computed there: the last step of a formula, a ufunc
    over all of a block, may use it as its ``out``."""
    pause: Callable[[], None] = _go_on
    """A formula that loops calls it at each step: it raises what ends the call, and lets waiting
    calls compute for a while."""
    outputs: Mapping[str, Any] | None = None
    """Where blocks of results go, by the output's name; see ``output``."""
    maximum: AnyArray | None = None
    """The maxima of rows of which the formula sees a piece."""
    total: AnyArray | None = None
    """The sums of such rows."""
    product: Product | None = None
    """The product of the rules for this call; kernels of products may give different results."""
    asked: frozenset[str] = frozenset()
    """The outputs that are computed; for another one, that is null or masked off, a formula may
    answer None."""
    shared: Callable[..., None] | None = None
    """Computes several blocks for ``each`` with the help of other threads."""
    narrow: Callable[[AnyArray], AnyArray] | None = None
    """See ``rounded``."""

    def with_out(self, out: AnyArray) -> Facts:
        """The same facts, and the place of a block's result."""
        return Facts(self.shapes, self.dtype, out, product=self.product)

    def count(self, name: str) -> int:
        """Number of elements of a shape."""
        return prod(self.shapes[name])

    def first(self, name: str) -> int:
        """First extent of a shape; 1 for rank 0."""
        return next(iter(self.shapes[name]), 1)

    def blocks(self, shape: Shape) -> Iterator[tuple[slice, ...]]:
        """The blocks of a shape, in row-major order, with a pause before each."""
        if 0 < prod(shape) <= BLOCK:
            self.pause()
            yield tuple(slice(0, extent) for extent in shape)
            return
        for index in cut(shape, BLOCK):
            self.pause()
            yield index

    def each(
        self,
        blocks: Sequence[B],
        compute: Callable[[B], R],
        add: Callable[[B, R], None] = lambda *_: None,
    ) -> None:
        """Computes blocks of a formula that gets everything at once, in as many threads as idle.

        Blocks are computed in any order, at the same time, and no ``compute`` may pause. ``add``
        gets each block and what it gave, in their order, once at a time: so sums have the same bits
        for any number of threads.
        """
        if self.shared is not None and len(blocks) > 1:
            self.shared(blocks, compute, add)
            return
        for block in blocks:
            self.pause()
            add(block, compute(block))

    def read(self, array: Array, index: Any) -> AnyArray:
        """Elements of an input of a formula that gets everything at once.

        They come as for other formulas: rounded, widened, contiguous. Other elements are not read
        or copied. ``index`` is what NumPy takes; the result belongs to the caller, unless the index
        is of slices alone.
        """
        whole: Any = array
        block: AnyArray = whole[index]
        return block

    def rounded(self, array: AnyArray) -> AnyArray:
        """An array in the formula's dtype, rounded to the kernel's.

        For what a kernel keeps in that dtype between two steps.
        """
        return array if self.narrow is None else self.narrow(array)

    def output(self, name: str, shape: Shape) -> AnyArray:
        """Where a formula that gets everything at once writes a result, each element once.

        The formula then returns it. Blocks are rounded when they are written; nothing can be read
        from it.
        """
        return self.outputs[name] if self.outputs else np.empty(shape, self.dtype)

    def row_max(self, array: AnyArray) -> AnyArray:
        """The maxima of complete rows, with an axis of extent 1, of the input ``max_of``.

        NaN where a row has one.
        """
        if self.maximum is not None:
            return self.maximum
        return _maxima(array)

    def place(self, name: str, index: Any) -> AnyArray | None:
        """Where a block of an output stands, if a ufunc can write there what it would assign.

        It counts as written then. None where results have to be converted, or put between others.
        """
        return self.outputs[name].place(index, self.dtype) if self.outputs else None

    def row_sum(self, array: AnyArray) -> AnyArray:
        """The sums of complete rows, with an axis of extent 1, of what ``sum_of`` declares."""
        if self.total is not None:
            return self.total
        sums: AnyArray = np.sum(array, -1, keepdims=True)
        return sums

    def reciprocal(self, divisor: int) -> np.floating[Any]:
        """``1 / divisor`` in double, rounded to float32, then to the formula's dtype.

        For a divisor of 0, which only a call without elements has, 1.
        """
        return _reciprocal(self.dtype, divisor)


def _maxima(array: AnyArray) -> AnyArray:
    """For many short rows, number by number, since NumPy would start again for each row."""
    length = array.shape[-1]
    if length > _SHORT or array.size < _MANY * length:
        maxima: AnyArray = np.max(array, -1, keepdims=True)
        return maxima
    maxima = array[..., :1].copy()
    for place in range(1, length):
        np.maximum(maxima, array[..., place : place + 1], out=maxima)
    return maxima


@lru_cache(1024)
def _reciprocal(dtype: np.dtype[Any], divisor: int) -> np.floating[Any]:
    factor = np.float64(1 / (divisor or 1))
    return factor if dtype == np.float64 else dtype.type(np.float32(factor))
