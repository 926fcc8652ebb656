"""Arithmetic on single numbers that does not raise: infinities and NaN follow IEEE 754.

The loops of statements use it on Python's floats, since ``math`` raises where IEEE 754 gives an
infinity or NaN. Sums and products of Python's floats follow IEEE 754 already.
"""

from __future__ import annotations

import cmath
import math

INFINITY, NAN = math.inf, math.nan


def exp(x: float, top: float = INFINITY) -> float:
    """The exponential of x; infinite beyond ``top``."""
    if isinstance(x, complex):
        return cmath.exp(x)  # type: ignore[return-value]  # where x is
    try:
        value = math.exp(x)
    except OverflowError:
        return INFINITY
    return capped(value, top)


def expm1(x: float, top: float = INFINITY) -> float:
    """The exponential of x, minus 1; infinite beyond ``top``."""
    try:
        value = math.expm1(x)
    except OverflowError:
        return INFINITY
    return capped(value, top)


def log(x: float) -> float:
    """Natural logarithm; -inf at 0, NaN below."""
    if x == 0:
        return -INFINITY
    return math.log(x) if x > 0 else NAN  # NaN is not greater than 0 either


def divide(x: float, y: float) -> float:
    """A quotient, also by zero."""
    if y != 0:
        return x / y
    if x == 0 or math.isnan(x):
        return NAN
    return math.copysign(INFINITY, x) * math.copysign(1, y)


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), computed so that it overflows on neither side."""
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    weight = math.exp(x)  # NaN comes here
    return weight / (1 + weight)


def capped(x: float, top: float) -> float:
    """The number, or the infinity of its sign if it is beyond ``top``."""
    return math.copysign(INFINITY, x) if abs(x) > top else x


def total(terms: list[float]) -> float:
    """Their exact sum, rounded once."""
    if any(isinstance(term, complex) for term in terms):
        parts = [[term.real for term in terms], [term.imag for term in terms]]
        return complex(*map(total, parts))  # type: ignore[return-value]  # where terms are
    if all(map(math.isfinite, terms)):
        return math.fsum(terms)
    return sum(terms)  # fsum raises if there are infinities of both signs
