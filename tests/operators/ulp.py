"""Judges results by units in the last place; tolerances as in [src:reference-precision]."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

# Bits of the fraction, and exponent of the smallest normal number.
FORMATS = {
    np.dtype(np.float32): (23, -126),
    np.dtype(np.float16): (10, -14),
    np.dtype(ml_dtypes.bfloat16): (7, -126),
}
SINGLE_NOISE = 32 * 2.0**-24
"""What float32 arithmetic inside may cost, relative to the size of the terms."""


def ulp(value: Any, dtype: Any) -> Any:
    """Distance between neighbours of a type at a value, in float64."""
    fraction, least = FORMATS[np.dtype(dtype)]
    exponent = np.frexp(np.asarray(value, np.float64))[1] - 1  # frexp's mantissa is in [0.5, 1)
    exponent = np.where(np.equal(value, 0), least, exponent)
    return np.ldexp(1.0, np.maximum(exponent, least) - fraction)


def assert_within(got: NDArray[Any], expected: NDArray[np.float64], allowed: Any) -> None:
    """NaN matches NaN, an infinity one of its sign, zeros match whatever their sign is."""
    assert got.shape == expected.shape
    found = got.astype(np.float64)
    special = ~np.isfinite(expected)
    np.testing.assert_array_equal(found[special], expected[special])
    apart = np.abs(found[~special] - expected[~special])
    bound = np.broadcast_to(allowed, expected.shape)[~special]
    assert np.all(apart <= bound), f"off by {apart.max()} where {bound[apart.argmax()]} is allowed"


def assert_rounded(found: NDArray[Any], expected: Any, dtype: Any, terms: Any = 0) -> None:
    """Of this dtype, and within one ulp of float64's result, and what cancels among the terms."""
    assert found.dtype == dtype
    expected = np.asarray(expected, np.float64)
    assert_within(found, expected, ulp(expected, dtype) + SINGLE_NOISE * np.asarray(terms))
