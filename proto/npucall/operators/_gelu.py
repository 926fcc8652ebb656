"""The two forms of the Gaussian error linear unit, and their derivatives.

In float64 unless noted: derivatives cancel where they pass through 0, and for larger negative
arguments float32 would leave few digits. The forms are NaN at -inf, the derivatives at both
infinities, as in torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import pi, sqrt

import numpy as np

from npucall.dtypes import AnyArray, Array
from npucall.operators._numerics import gated, normal_distribution, sigmoid

SCALE = sqrt(2 / pi)
CUBIC = 0.044715
_PIECE = 1 << 13
"""Elements of a piece: a few arrays of float64 of this length."""


def in_pieces(function: Callable[[AnyArray], AnyArray]) -> Callable[[Array], AnyArray]:
    """An elementwise function of many steps in float64, in pieces that stay in the cache."""

    @wraps(function)
    def whole(x: Array) -> AnyArray:
        wide = np.asarray(x)
        result = np.empty(wide.shape, np.float64)
        flat, results = wide.reshape(-1), result.reshape(-1)
        for start in range(0, flat.size, _PIECE):
            piece = slice(start, start + _PIECE)
            results[piece] = function(flat[piece].astype(np.float64))
        return result

    return whole


@in_pieces
def erf_form(x: AnyArray) -> AnyArray:
    """``x * P(x)``, P the normal distribution function."""
    return x * normal_distribution(x)[0]


def tanh_form(x: Array, out: AnyArray | None = None) -> AnyArray:
    """``x * (1 + tanh u) / 2``, where ``u = sqrt(2 / pi) * (x + 0.044715 x^3)``.

    In the array's own dtype: nothing cancels in ``x * sigmoid(2 u)``.
    """
    values = np.asarray(x)
    gates = values * values
    gates *= 2 * SCALE * CUBIC
    gates += 2 * SCALE
    gates *= values
    return gated(values, gates, out)


@in_pieces
def erf_derivative(x: AnyArray) -> AnyArray:
    """Of ``erf_form``: ``P(x) + x * density(x)``."""
    distribution, density = normal_distribution(x)
    return distribution + x * density


@in_pieces
def tanh_derivative(x: AnyArray) -> AnyArray:
    """Of ``tanh_form``.

    ``(1 + tanh u) / 2`` is ``s = sigmoid(2 u)``, which loses nothing where tanh is nearly -1; its
    derivative by ``u`` is ``2 s (1 - s)``.
    """
    square = x * x
    s = sigmoid(2 * SCALE * x * (1 + CUBIC * square))
    slope = SCALE * (1 + 3 * CUBIC * square)
    return s * (1 + 2 * x * (1 - s) * slope)
