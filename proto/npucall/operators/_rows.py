"""Rows and their statistics: what norms over last axes, groups and channels have in common.

Of a row x of n elements, and of an upstream gradient d of its normal form::

    mean = sum(x) / n
    rstd = 1 / sqrt(sum((x - mean)^2) / n + eps)
    normal = (x - mean) * rstd
    gradient of x = rstd * (d - sum(d) / n - normal * sum(d * normal) / n)

Root mean square norms have no mean: there it is 0, and so is the second term of the gradient.
Rows are computed in the formula's dtype, blocks of them at a time; sums over rows in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Facts
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.dtypes import FLOAT, AnyArray, Array
from npucall.operators._numerics import numbered, row_sums
from npucall.tensors import Shape

_FEW = 96
"""Rows that are added up one after the other without float64."""
_FORWARD, _BACKWARD = 24, 56
"""Bytes that a formula holds of each element of a row; backward with two sums over all rows."""


def held(*, backward: bool, steps: int = 0) -> Callable[[Facts, Mapping[str, Any]], int]:
    """Bytes of a row that is longer than a block; forward of two numbers for each row besides.

    ``steps``: bytes of each element that what is done behind the rows holds.
    """

    def holds(facts: Facts, _: Mapping[str, Any]) -> int:
        length = facts.count("row")
        of_row = ((_BACKWARD if backward else _FORWARD) + steps) * length
        kept = 0 if backward else 2 * facts.count("rows") * FLOAT.itemsize
        return (of_row if length > BLOCK else 0) + kept

    return holds


def each_rows(
    facts: Facts,
    lead: Shape,
    length: int,
    compute: Callable[[tuple[slice, ...]], Any],
    add: Callable[[Any, Any], None] = lambda *_: None,
    most: int = 4,
) -> None:
    """Computes blocks of complete rows, by their places in ``lead``, the shape of all rows.

    Those longer than a block one after the other, since each holds memory. ``most``: see
    ``shared_block``.
    """
    if length > BLOCK:
        facts = replace(facts, shared=None)
    block = shared_block(prod(lead) * length, most)
    facts.each(cut(lead, max(block // max(length, 1), 1)), compute, add)


def numbers_of(lead: Shape, index: tuple[slice, ...]) -> slice:
    """The numbers of some rows in row-major order."""
    first, count = 0, 1
    for extent, piece in zip(lead, index, strict=True):
        first = first * extent + piece.start
        count *= piece.stop - piece.start
    return slice(first, first + count)


def one_a_row(facts: Facts, array: Array, lead: Shape, index: tuple[slice, ...]) -> AnyArray:
    """The numbers of some rows, (rows, 1), of a tensor of any shape that has one for each."""
    if array.shape[: len(lead)] == lead:
        numbers = facts.read(array, index)
    else:
        rows = numbers_of(lead, index)
        numbers = numbered(facts, array, np.arange(rows.start, rows.stop))
    return np.asarray(numbers, facts.dtype).reshape(-1, 1)


def statistics(x: AnyArray, eps: float, *, centred: bool) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The normal forms of rows, and a mean and an rstd for each."""
    normal, mean, variance = moments(x, centred=centred)
    rstd = 1 / np.sqrt(variance + x.dtype.type(eps))
    return np.multiply(normal, rstd, out=normal if centred else None), mean, rstd


def moments(x: AnyArray, *, centred: bool = True) -> tuple[AnyArray, AnyArray, AnyArray]:
    """Rows without their means, where ``centred``; and a mean and a variance for each."""
    length = x.dtype.type(x.shape[-1])
    if not centred:
        return x, np.zeros((len(x), 1), x.dtype), row_sums(x, x) / length
    mean = row_sums(x) / length
    found = x - mean
    return found, mean, row_sums(found, found) / length


def gradient(
    d: AnyArray,
    normal: AnyArray,
    rstd: AnyArray,
    sums: tuple[AnyArray, AnyArray | None],
    out: AnyArray | None = None,
) -> AnyArray:
    """The gradient of rows, from that of their normal forms, which are spoilt.

    ``sums``: of d * normal and of d, for each row; of norms without a mean only the first. ``out``:
    where it may be computed.
    """
    length = d.dtype.type(d.shape[-1])
    products, total = sums
    normal *= products / length
    if total is not None:
        normal += total / length
    np.subtract(d, normal, out=normal)
    return np.multiply(normal, rstd, out=normal if out is None else out)


class Sums:
    """The gradients of weight and bias: sums over all rows of grad * normal and of grad."""

    def __init__(self, length: int, asked: tuple[bool, bool]) -> None:
        self._asked = asked
        self._totals = [np.zeros(length) if each else None for each in asked]

    def part(self, grad: AnyArray, products: AnyArray) -> list[AnyArray | None]:
        """What some rows add."""
        of_weight, of_bias = self._asked
        return [
            _columns(products) if of_weight else None,
            _columns(grad) if of_bias else None,
        ]

    def add(self, _: object, parts: list[AnyArray | None]) -> None:
        """Adds it."""
        for total, part in zip(self._totals, parts, strict=True):
            if total is not None and part is not None:
                np.add(total, part, out=total)

    def shaped(self, shape: Shape) -> tuple[AnyArray | None, AnyArray | None]:
        """Both in the shape of the weight; None where nobody asks."""
        weight, bias = (None if each is None else each.reshape(shape) for each in self._totals)
        return weight, bias


def _columns(block: AnyArray) -> AnyArray:
    """The sums of columns: of a few rows at a time as products with ones, of these in float64."""
    whole, ones = len(block) - len(block) % _FEW, np.ones(_FEW, block.dtype)
    sums: AnyArray = (ones[: len(block) - whole] @ block[whole:]).astype(np.float64)
    if whole:
        groups = block[:whole].reshape(-1, _FEW, block.shape[1])
        sums += np.add.reduce(ones @ groups, 0, np.float64)
    return sums


def place_of(facts: Facts, name: str, index: tuple[slice, ...], shape: Shape) -> AnyArray | None:
    """Where some rows of an output stand, if a ufunc can write there: see ``Facts.place``."""
    place = facts.place(name, index)
    return None if place is None else place.reshape(shape)


def flat(facts: Facts, weight: Array | None) -> AnyArray | None:
    """A weight in the formula's dtype, as a row."""
    return None if weight is None else np.asarray(facts.read(weight, ...), facts.dtype).reshape(-1)
