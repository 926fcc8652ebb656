"""L1LossBackward in float64 against torch, and the places where the two differ on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute

from .running import L1
from .torch_truth import drawn, l1_gradient

NONE, MEAN, SUM = range(3)
# torch warns where the shapes of self and target differ, which is what these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")

# self, target
STRETCHED = {
    "equal": ((4, 6), (4, 6)),
    "rank 0": ((), ()),
    "target a row": ((4, 6), (6,)),
    "target of rank 0": ((4, 6), ()),
    "self a column": ((4, 1), (4, 6)),
    "self of lower rank": ((6,), (4, 6)),
    "each stretches the other": ((4, 1), (1, 6)),
}


def summed_to(shape: tuple[int, ...], array: Any) -> Any:
    """Adds up the axes along which a tensor of that shape was stretched."""
    lead = array.ndim - len(shape)
    stretched = tuple(
        lead + i for i, n in enumerate(shape) if n == 1 and array.shape[lead + i] != 1
    )
    return array.sum((*range(lead), *stretched)).reshape(shape)


@pytest.mark.parametrize("shapes", STRETCHED.values(), ids=STRETCHED)
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM])
def test_the_gradient_summed_over_the_stretched_axes_is_that_of_torch(
    reduction: int, shapes: Any
) -> None:
    upstream = np.broadcast_shapes(*shapes) if reduction == NONE else ()
    tensors = drawn(upstream, *shapes)
    found = compute(L1, **tensors, reduction=reduction)
    assert found.shape == np.broadcast_shapes(*shapes)  # here nothing is summed
    expected = l1_gradient("self", tensors, reduction)
    np.testing.assert_allclose(summed_to(shapes[0], found), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shapes", STRETCHED.values(), ids=STRETCHED)
def test_the_negated_gradient_is_that_of_target(shapes: Any) -> None:
    tensors = drawn((), *shapes)
    found = -compute(L1, **tensors, reduction=MEAN)
    expected = l1_gradient("target", tensors, MEAN)
    np.testing.assert_allclose(summed_to(shapes[1], found), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("pair", [(np.nan, 1.0), (1.0, np.nan), (np.inf, np.inf), (2.0, 2.0)])
def test_the_sign_is_0_for_nan_and_for_equal_values_as_in_torch(pair: tuple[float, float]) -> None:
    tensors = {
        "grad_output": np.array([3.0]),
        "self": np.array([pair[0]]),
        "target": np.array([pair[1]]),
    }
    assert compute(L1, **tensors, reduction=NONE) == [0]
    assert l1_gradient("self", tensors, NONE) == [0]


def test_mean_counts_an_enlargement_by_grad_output_which_torch_does_not() -> None:
    small = {"self": np.array([3.0, 0]), "target": np.array([1.0, 2])}
    enlarged = compute(L1, np.full((3, 1), 6.0), **small, reduction=MEAN)
    np.testing.assert_array_equal(enlarged, [[1, -1]] * 3)  # 6 / 6
    usual = l1_gradient("self", {"grad_output": np.array(6.0), **small}, MEAN)
    np.testing.assert_array_equal(usual, [3, -3])  # 6 / 2
