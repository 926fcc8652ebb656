"""What a formula works on: elements, complete rows, or everything at once.

Each kind also says what evaluating a call costs: bytes of memory in addition to the call's
storages, and elements to compute. Blocks do not count: they belong to the computing threads; each
thread holds one at a time, of at most ``LANE_BYTES``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from npucall.declare.cuts import BLOCK
from npucall.dtypes import DOUBLE, AnyArray

if TYPE_CHECKING:
    from npucall.declare.facts import Facts
    from npucall.declare.prepare import Prepared

LANE_BYTES = 12 << 20
"""Most bytes that one thread holds for the blocks of any call."""
_SUM = DOUBLE.itemsize
_PARTS, _LARGEST_PART = 3, 1 << 20
"""Of a sum so many parts of so many elements at most wait to be added."""

Count: TypeAlias = "Callable[[Facts, Mapping[str, Any]], int]"
"""Finds a number from the facts of a call and its attributes."""


@dataclass(frozen=True)
class Elementwise:
    """The formula works element by element on ``space``, a shape that the rules found.

    ``sum_to`` names an input, or a shape that the rules found: results are summed over the axes
    along which it was broadcast. Without ``factor``, as gradients are, they are rounded to the
    kernel dtype before that. With it, as losses are, they are not: the sums are multiplied by it,
    and rounded once. ``widen=False``: the formula gets the kernel dtype itself, where a kernel
    rounds every step; otherwise float32.
    """

    space: str
    sum_to: str | None = None
    widen: bool = True
    factor: Callable[[Facts, Mapping[str, Any]], Any] | None = None

    def working_bytes(self, call: Prepared) -> int:
        """The sums and their parts, where there are any."""
        (output,) = call.outputs.values()
        if output.shape == call.facts.shapes[self.space]:
            return 0
        return _SUM * (output.elements + _PARTS * min(output.elements, _LARGEST_PART))

    def computation(self, call: Prepared) -> int:
        """The elements of the space."""
        return call.facts.count(self.space)


@dataclass(frozen=True)
class Rows:
    """The formula works on complete rows along the attribute ``dim``: its arrays' last axis.

    Rows longer than a block are cut into pieces where that is possible: where all that a piece
    needs of the others is one maximum, one sum, or nothing. They are computed in passes then: one
    for the maxima of the input ``max_of``, which ``facts.row_max`` gives; one for the sums that
    ``facts.row_sum`` gives, of what ``sum_of`` makes of facts and inputs, by position; and the
    formula's. ``halves`` names tensors that have two elements along ``dim`` for each of the others:
    their arrays have a first axis of extent 2. Otherwise rows stay whole, and ``arrays`` says how
    many arrays of float64, as long as the longest row, the formula and its inputs and results are
    at the most.
    """

    dim: str
    widen: bool = True
    max_of: str | None = None
    sum_of: Callable[..., AnyArray] | None = None
    halves: tuple[str, ...] = ()
    arrays: int = 16

    @property
    def divisible(self) -> bool:
        """Whether a long row is cut."""
        return bool(self._passes or self.halves)

    @property
    def whole(self) -> int:
        """Elements of the longest row that is not cut, of one that may be.

        A row of two blocks is still quicker at once than in passes.
        """
        return 2 * BLOCK if self._passes else BLOCK

    def longest(self, call: Prepared) -> int:
        """Elements of the longest row, of one half where there are two; at least 1."""
        return max(1, *(self._length(name, shape, call) for name, shape in _shapes(call).items()))

    def working_bytes(self, call: Prepared) -> int:
        """Maxima and sums of long rows that are cut, and of their pieces; of a whole one all."""
        longest = self.longest(call)
        if not self.divisible:
            return longest * self.arrays * DOUBLE.itemsize if longest > BLOCK else 0
        if longest <= self.whole:
            return 0
        numbers = 1 + -(-longest // BLOCK)  # of a row, and of each of its pieces
        return _SUM * self._passes * numbers * (self.computation(call) // longest)

    def computation(self, call: Prepared) -> int:
        """The elements of the largest tensor."""
        return _largest(call)

    @property
    def _passes(self) -> int:
        """Those before that of the formula."""
        return bool(self.max_of) + bool(self.sum_of)

    def _length(self, name: str, shape: tuple[int, ...], call: Prepared) -> int:
        length = shape[call.attributes[self.dim]] if shape else 1
        return length // 2 if name in self.halves else length


@dataclass(frozen=True)
class AtOnce:
    """The formula gets every array whole, and may answer a tuple of several.

    It takes blocks of them itself (``facts.blocks``, ``facts.read``) and writes blocks of its
    results (``facts.output``), so that neither memory nor time grows beyond bounds between two of
    them. ``holds``: bytes that it holds in addition to blocks; ``computes``: elements that it
    computes, by default those of the largest tensor.
    """

    widen: bool = True
    holds: Count | None = None
    computes: Count | None = None

    def working_bytes(self, call: Prepared) -> int:
        """What is declared."""
        return self.holds(call.facts, call.attributes) if self.holds else 0

    def computation(self, call: Prepared) -> int:
        """What is declared, and no less than the elements of the largest tensor."""
        declared = self.computes(call.facts, call.attributes) if self.computes else 0
        return max(declared, _largest(call))


Domain: TypeAlias = Elementwise | Rows | AtOnce
elementwise, rows, at_once = Elementwise, Rows, AtOnce


def _shapes(call: Prepared) -> dict[str, tuple[int, ...]]:
    return {name: spec.shape for name, spec in {**call.inputs, **call.outputs}.items()}


def _largest(call: Prepared) -> int:
    return max(map(prod, _shapes(call).values()), default=0)
