"""The gradients of the activations against torch: in float64, and rounded in every float type."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute

from .activations import ACTIVATIONS, FLOATS, Activation, short
from .ulp import SINGLE_NOISE, assert_within, ulp

pytest.importorskip("torch")

INF, NAN = np.inf, np.nan
# Where any of them bends or ends, numbers between, and those that no formula likes.
INPUTS = [
    *(-INF, -200.0, -20.0, -3.5, -3.0, -2.9375, -2.0, -1.0, -0.5, -0.0, 0.0, 0.4375),
    *(0.625, 1.0, 2.0, 2.9375, 3.0, 3.5, 6.0, 20.0, 20.0625, 200.0, INF, NAN),
]
GRADIENTS = [2.0, -0.75, 0.0, INF, -INF, NAN]


def grid(activation: Activation, gradients: list[float]) -> tuple[Any, Any]:
    """Every gradient with every input at which the operator is torch's."""
    pairs = [
        (g, x)
        for g, x in product(gradients, INPUTS)
        if x not in activation.differs_at
        and not (activation.factor_below and x < -3 and not np.isfinite(g))
    ]
    g, x = np.array(pairs).T
    return g.copy(), x.copy()


def drawn(dtype: Any) -> tuple[Any, Any]:
    """Gradients and inputs in a type, inputs to both sides of every bend."""
    random = np.random.default_rng(7)
    g = random.uniform(-4, 4, (50, 40)).astype(dtype)
    x = random.uniform(-8, 8, (50, 40)).astype(dtype)
    x[np.abs(x) == 3] = 2  # where BF16 meets the ends, one operator is not torch's
    return g, x


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_in_float64_the_gradient_is_torchs_everywhere(activation: Activation) -> None:
    g, x = drawn(np.float64)
    found = compute(activation.operator, **activation.tensors(g, x), **activation.attributes)
    np.testing.assert_allclose(found, activation.torch(g, x), rtol=1e-13)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_edge_values_are_torchs_in_float64(activation: Activation) -> None:
    g, x = grid(activation, GRADIENTS)
    found = compute(activation.operator, **activation.tensors(g, x), **activation.attributes)
    np.testing.assert_allclose(found, activation.torch_one_by_one(g, x), rtol=1e-13)


@pytest.mark.parametrize("dtype", FLOATS, ids=short)
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_rounded_the_gradient_is_within_an_ulp_of_torchs(
    activation: Activation, dtype: Any
) -> None:
    g, x = drawn(dtype)
    found = activation.run(g, x)
    assert found.dtype == dtype
    expected = activation.torch(g.astype(np.float64), x.astype(np.float64))
    terms = np.abs(g * (1 + np.abs(x))) if activation.sums else np.abs(expected)
    allowed = ulp(expected, dtype) + SINGLE_NOISE * terms.astype(np.float64)
    assert_within(found, expected, allowed)


@pytest.mark.parametrize("dtype", FLOATS, ids=short)
@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_edge_values_are_torchs_in_every_float_type(activation: Activation, dtype: Any) -> None:
    g, x = grid(activation, [1.0, -1.0, INF, NAN])
    narrow = np.abs(x) != 200  # e^200 is a number in float64 alone
    g, x = g[narrow], x[narrow]
    expected = activation.torch_one_by_one(g, x)
    found = activation.run(g.astype(dtype), x.astype(dtype)).astype(np.float64)
    special = ~np.isfinite(expected) | (expected == 0)
    np.testing.assert_array_equal(found[special], expected[special])
    assert np.isfinite(found[~special]).all()


@pytest.mark.parametrize("operator", ["aclnnLeakyReluBackward"])
def test_double_is_computed_in_float64_where_it_is_taken(operator: str) -> None:
    activation = next(a for a in ACTIVATIONS if a.operator.name == operator)
    g, x = drawn(np.float64)
    np.testing.assert_array_equal(activation.run(g, x), activation.torch(g, x))


def test_softplus_computes_double_in_float_unlike_torch() -> None:
    activation = next(a for a in ACTIVATIONS if a.operator.name == "aclnnSoftplusBackward")
    g, x = drawn(np.float64)
    found, expected = activation.run(g, x), activation.torch(g, x)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, found.astype(np.float32))  # nothing finer in it
    assert (found != expected).any()
    np.testing.assert_allclose(found, expected, rtol=2**-21)
