"""The two forms of the Gaussian error linear unit, and their derivatives.

Where not said otherwise in float64: derivatives cancel where they pass through 0, and for negative
arguments of some size float32 would leave few digits. The forms are NaN at -inf, the derivatives at
both infinities, as in torch.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING

import numpy as np

from npucall.operators._numerics import gated, normal_distribution, sigmoid

if TYPE_CHECKING:
    from npucall.dtypes import AnyArray, Array

SCALE = sqrt(2 / pi)
CUBIC = 0.044715


def erf_form(x: Array) -> AnyArray:
    """``x * P(x)``, P the normal distribution function."""
    wide = np.asarray(x, np.float64)
    return wide * normal_distribution(wide)[0]


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


def erf_derivative(x: Array) -> AnyArray:
    """Of ``erf_form``: ``P(x) + x * density(x)``."""
    wide = np.asarray(x, np.float64)
    distribution, density = normal_distribution(wide)
    return distribution + wide * density


def tanh_derivative(x: Array) -> AnyArray:
    """Of ``tanh_form``.

    ``(1 + tanh u) / 2`` is ``s = sigmoid(2 u)``, which loses nothing where tanh is nearly -1; its
    derivative by ``u`` is ``2 s (1 - s)``.
    """
    wide = np.asarray(x, np.float64)
    square = wide * wide
    s = sigmoid(2 * SCALE * wide * (1 + CUBIC * square))
    slope = SCALE * (1 + 3 * CUBIC * square)
    return s * (1 + 2 * wide * (1 - s) * slope)
