"""Mathematics that operators share."""

from __future__ import annotations

from math import inf, pi, sqrt
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from npucall.declare import Facts, choice
from npucall.dtypes import AnyArray, Array

NONE, MEAN, SUM, BATCHMEAN = range(4)
"""Reduction codes. In a gradient they scale, they do not sum."""

_ONE = 40
"""From here on the sigmoid is 1 also in float64, and e^x is far from too large in float32."""
_PIECE = 1 << 9
"""Numbers that BLAS adds up, of rows of more than two pieces: 32 for each of 16 lanes, or fewer."""
_CLOSED = -85
"""1 + e^-x is e^-x for such an x, and nearly infinite in float32."""

_Word: TypeAlias = Literal["none", "mean", "sum"]
_KlWord: TypeAlias = Literal["none", "mean", "sum", "batchmean"]
Reduction: TypeAlias = int | _Word
"""What callers give for a reduction. Formulas get the integer."""
KlReduction: TypeAlias = int | _KlWord
"""The same of KL divergences."""


REDUCTION = choice("reduction", *get_args(_Word), other="no other")
KL_WORDS = get_args(_KlWord)
KL_REDUCTION = choice("reduction", *KL_WORDS, other="any other acts as none")


def kl_factor(facts: Facts, reduction: KlReduction, space: str) -> np.floating[Any]:
    """The factor of a KL gradient: 1 / elements, or 1 / first extent, of the shape ``space``."""
    if reduction == MEAN:
        return facts.reciprocal(facts.count(space))
    return facts.reciprocal(facts.first(space) if reduction == BATCHMEAN else 1)


def numbered(facts: Facts, array: Array, numbers: AnyArray) -> AnyArray:
    """Elements of an input by their numbers in row-major order; nothing else of it is read."""
    shape = array.shape
    if len(shape) == 1:
        return facts.read(array, numbers)
    if not shape:
        return facts.read(array, ...)
    # In a row: of more than 8,192 in a column NumPy 2.4 finds wrong places.
    places = np.unravel_index(np.ravel(numbers), shape)
    return facts.read(array, places).reshape(np.shape(numbers))


def chosen(mask: AnyArray, one: AnyArray, other: AnyArray, out: AnyArray | None = None) -> AnyArray:
    """``one`` where the mask is true, else ``other``: of one dtype, arrays that broadcast, numbers.

    ``np.where``, by bits: that takes 7 ns a number where the mask has no pattern, this 1. ``out``:
    where it may be computed, of the result's shape.
    """
    bits = np.dtype(f"i{other.itemsize}")
    old = other.view(bits)
    taken = (one.view(bits) ^ old) & np.negative(mask.view(np.int8)).astype(bits)
    if out is None:
        result: AnyArray = (taken ^ old).view(other.dtype)
        return result
    np.bitwise_xor(taken, old, out=out.view(bits))
    return out


def row_sums(rows: AnyArray, others: AnyArray | None = None) -> AnyArray:
    """The sum of each row of numbers, (..., 1); with others of its products with these, or a row.

    Pieces of a row are added up by BLAS, in a few lanes, their sums in pairs: an error of at most a
    few units of the size of the terms, in a third of the time that NumPy takes, and no array of
    products.
    """
    length = rows.shape[-1]
    whole = 0 if length <= 2 * _PIECE else length - length % _PIECE
    if others is None:
        others = np.ones(length, rows.dtype)
    tails = _dots(rows[..., whole:], others[..., whole:])
    if not whole:
        return tails
    pieces, factors = (
        each[..., :whole].reshape(*each.shape[:-1], -1, _PIECE) for each in (rows, others)
    )
    sums: AnyArray = np.add.reduce(_dots(pieces, factors), -2)
    return sums if whole == length else np.add(sums, tails, out=sums)


def _dots(rows: AnyArray, others: AnyArray) -> AnyArray:
    products: AnyArray = np.matmul(rows[..., np.newaxis, :], others[..., np.newaxis])
    return products[..., 0]


def sigmoid(x: AnyArray, out: AnyArray | None = None) -> AnyArray:
    """``1 / (1 + e^-x)`` in the array's own dtype; large x of either sign lose nothing."""
    power = np.exp(np.clip(x, -inf, _ONE))
    total = np.add(power, 1, out=out)
    return np.divide(power, total, out=out)


def gated(values: AnyArray, gates: AnyArray, out: AnyArray | None = None) -> AnyArray:
    """``values * sigmoid(gates)`` in the arrays' own dtype; large gates lose nothing.

    Where e^-gate is beyond float32, the product is not 0 yet: there it is taken by the root of
    e^gate, which has all its digits. ``out``: where it may be computed.
    """
    power = np.exp(-gates)
    power += 1
    opened = np.divide(values, power, out=out)
    closed = gates < _CLOSED
    if closed.any():
        root = np.exp(gates[closed] * 0.5)
        opened[closed] = values[closed] * root * root
    return opened


def log_sigmoid(x: AnyArray) -> AnyArray:
    """``ln(1 / (1 + e^-x))`` in the array's own dtype; large x of either sign lose nothing."""
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def normal_distribution(x: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Distribution function and density of the standard normal distribution, in float64.

    ``(1 + erf(x / sqrt(2))) / 2`` and ``e^(-x^2 / 2) / sqrt(2 pi)``. For an x of float32's 24 bits
    both have a relative error of a few 2^-53, also where they are nearly 0, down to x = -37, where
    the normal numbers of float64 end.
    """
    wide = np.asarray(x, np.float64)
    density = np.exp(-0.5 * wide * wide) * (1 / sqrt(2 * pi))
    beyond = density * _mills_ratio(np.abs(wide))
    return chosen(wide < 0, beyond, 1 - beyond), density


def _mills_ratio(x: AnyArray) -> AnyArray:
    """``(1 - distribution) / density`` of the standard normal distribution for x >= 0.

    ``(1 + x)`` times the ratio is smooth and goes from sqrt(pi / 2) to 1; ``y = (x - 4) / (x + 4)``
    takes 0 to infinity to -1 to 1, where a polynomial is that near.
    """
    y = 1 - 8 / (x + 4)
    smooth = np.full_like(y, _MILLS[-1])
    for coefficient in _MILLS[-2::-1]:
        smooth *= y
        smooth += coefficient
    return smooth / (1 + x)


# (1 + x) sqrt(pi / 2) e^(x^2 / 2) erfc(x / sqrt(2)) in powers of y: its Chebyshev series, computed
# from 60 nodes with 40 digits, cut after T24, where the rest is below 2^-53, and expanded.
_MILLS = (
    1.1832619145678034,
    -0.2423996705218081,
    0.035091880234748005,
    0.07169048120143744,
    -0.0807080096790523,
    0.04495912907706981,
    -0.01253910362039814,
    -0.0007159509052838121,
    0.001741848773732585,
    -0.00023670175882712258,
    -0.0002202155756957516,
    5.3266970938315365e-05,
    3.415881433183821e-05,
    -8.606187876096938e-06,
    -6.5533544552582505e-06,
    1.0194890870987357e-06,
    1.390762707984928e-06,
    -3.101083609757584e-09,
    -2.869299965207942e-07,
    -4.494916382038613e-08,
    5.077844122332048e-08,
    1.3723059452459651e-08,
    -6.5624402369464745e-09,
    -1.6952996818880583e-09,
    4.480233382099169e-10,
)
