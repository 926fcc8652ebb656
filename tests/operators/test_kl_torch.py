"""The KL operators in float64 against torch, and the places where the two differ on purpose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.compute.evaluate import compute

from .running import BUILTIN, COMMUNITY, DOCUMENTED, KL, attributes_of, title
from .torch_truth import drawn, kl_gradient, torch

NONE, MEAN, SUM, BATCHMEAN = range(4)
# torch warns that its "mean" will change some day.
pytestmark = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")

# self, target
STRETCHED = {
    "equal": ((4, 6), (4, 6)),
    "rank 0": ((), ()),
    "target a row": ((4, 6), (6,)),
    "target a column": ((4, 6), (4, 1)),
    "target of rank 0": ((4, 6), ()),
    "self a column": ((4, 1), (4, 6)),
    "self of lower rank": ((6,), (4, 6)),
    "self of rank 0": ((), (4, 6)),
    "each stretches the other": ((4, 1), (1, 6)),
    "rank 3, outer axes": ((1, 3, 1), (2, 3, 5)),
}
SAME_BATCH = {
    key: shapes
    for key, shapes in STRETCHED.items()
    if key in {"equal", "target a row", "target a column", "self a column"}
}
GRADIENTS = [(KL, "self"), (BUILTIN, "target")]


def assert_equal_in_double(found: Any, expected: Any) -> None:
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shapes", STRETCHED.values(), ids=STRETCHED)
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("reduction", [MEAN, SUM])
@pytest.mark.parametrize(("operator", "of"), GRADIENTS, ids=title)
def test_reduced_losses_have_the_gradient_that_torch_computes(
    operator: Any, of: str, reduction: int, log_target: bool, shapes: Any
) -> None:
    tensors = drawn((), *shapes, log_target=log_target)
    found = compute(operator, **tensors, reduction=reduction, log_target=log_target)
    assert_equal_in_double(found, kl_gradient(of, tensors, reduction, log_target))


@pytest.mark.parametrize("shapes", STRETCHED.values(), ids=STRETCHED)
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize(("operator", "of"), GRADIENTS, ids=title)
def test_the_unreduced_loss_has_the_gradient_that_torch_computes(
    operator: Any, of: str, log_target: bool, shapes: Any
) -> None:
    tensors = drawn(np.broadcast_shapes(*shapes), *shapes, log_target=log_target)
    found = compute(operator, **tensors, reduction=NONE, log_target=log_target)
    assert_equal_in_double(found, kl_gradient(of, tensors, NONE, log_target))


@pytest.mark.parametrize("shapes", SAME_BATCH.values(), ids=SAME_BATCH)
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize(("operator", "of"), GRADIENTS, ids=title)
def test_batchmean_is_that_of_torch_where_self_has_the_first_extent_of_the_broadcast(
    operator: Any, of: str, log_target: bool, shapes: Any
) -> None:
    tensors = drawn((), *shapes, log_target=log_target)
    found = compute(operator, **tensors, reduction=BATCHMEAN, log_target=log_target)
    assert_equal_in_double(found, kl_gradient(of, tensors, BATCHMEAN, log_target))


def test_batchmean_divides_by_the_broadcast_extent_where_torch_takes_that_of_self() -> None:
    tensors: dict[str, Any] = {
        "grad_output": np.array(1.0),
        "self": np.zeros((1, 2)),
        "target": np.array([[1.0, 2], [3, 4], [5, 6]]),
    }
    found = compute(KL, **tensors, reduction=BATCHMEAN)
    np.testing.assert_allclose(found, [[-3, -4]])  # by 3; E7
    np.testing.assert_allclose(kl_gradient("self", tensors, BATCHMEAN, False), [[-9, -12]])  # by 1


def test_the_float16_mean_multiplies_before_it_divides_where_torch_divides_first() -> None:
    g, t, count = 2.0**-20, 1024.0, 64
    tensors: dict[str, Any] = {
        "grad_output": np.array(g, np.float16),
        "self": np.zeros(count, np.float16),
        "target": np.full(count, t, np.float16),
    }
    # g / 64 = 2^-26 is 0 in FLOAT16, whose least number is 2^-24; t g / 64 = 2^-16 is not.
    np.testing.assert_array_equal(compute(KL, **tensors), np.full(count, -(2.0**-16)))
    np.testing.assert_array_equal(kl_gradient("self", tensors, MEAN, False), np.zeros(count))


def test_self_may_be_nan_here_as_in_torch() -> None:
    tensors: dict[str, Any] = {
        "grad_output": np.array(2.0),
        "self": np.array([np.nan]),
        "target": np.array([3.0]),
    }
    assert compute(KL, **tensors, reduction=SUM) == [-6]
    assert kl_gradient("self", tensors, SUM, False) == [-6]


def test_an_empty_target_leaves_zeros_for_self_as_in_torch() -> None:
    tensors = drawn((), (2, 1), (2, 0))
    found = compute(KL, **tensors, reduction=SUM)
    np.testing.assert_array_equal(found, kl_gradient("self", tensors, SUM, False))
    np.testing.assert_array_equal(found, [[0], [0]])


@pytest.mark.parametrize("t", [0.0, -0.0, np.inf])
def test_builtin_is_nan_at_the_ends_of_target_as_torch_is(t: float) -> None:
    tensors: dict[str, Any] = {
        "grad_output": np.array([2.0]),
        "self": np.array([-1.0]),
        "target": np.array([t]),
    }
    found = compute(BUILTIN, **tensors, reduction=NONE)
    np.testing.assert_equal(found, kl_gradient("target", tensors, NONE, False))
    assert np.isnan(found[0])


def test_builtin_is_nan_for_a_negative_target_and_no_gradient_where_torch_is_0() -> None:
    tensors: dict[str, Any] = {
        "grad_output": np.zeros(1),
        "self": np.array([-1.0]),
        "target": np.array([-0.5]),
    }
    assert np.isnan(compute(BUILTIN, **tensors, reduction=NONE)[0])
    assert kl_gradient("target", tensors, NONE, False)[0] == 0


@pytest.mark.parametrize("operator", [COMMUNITY, DOCUMENTED], ids=title)
def test_the_masked_variants_are_0_at_a_target_of_0_where_torch_is_nan(operator: Any) -> None:
    tensors: dict[str, Any] = {
        "grad_output": np.array([2.0]),
        "self": np.array([-1.0]),
        "target": np.zeros(1),
    }
    assert compute(operator, **tensors, reduction=NONE)[0] == 0
    assert np.isnan(kl_gradient("target", tensors, NONE, False)[0])


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("operator", [COMMUNITY, DOCUMENTED], ids=title)
@pytest.mark.parametrize("reduction", [NONE, SUM])
def test_the_masked_variants_have_the_gradient_of_torch_where_nothing_is_stretched(
    operator: Any, reduction: int, log_target: bool
) -> None:
    shape = () if reduction == SUM else (4, 6)
    tensors = drawn(shape, (4, 6), (4, 6), log_target=log_target)
    found = compute(operator, **tensors, reduction=reduction, log_target=log_target)
    assert_equal_in_double(found, kl_gradient("target", tensors, reduction, log_target))


@pytest.mark.parametrize("log_target", [False, True])
def test_the_mean_of_community_is_that_of_torch_where_nothing_is_stretched(
    log_target: bool,
) -> None:
    tensors = drawn((), (4, 6), (4, 6), log_target=log_target)
    found = compute(COMMUNITY, **tensors, reduction=MEAN, log_target=log_target)
    assert_equal_in_double(found, kl_gradient("target", tensors, MEAN, log_target))


def test_the_mean_of_documented_is_that_of_torch_times_the_elements_of_a_row() -> None:
    tensors = drawn((), (4, 6), (4, 6))
    found = compute(DOCUMENTED, **tensors, reduction=MEAN)
    assert_equal_in_double(found, 6 * kl_gradient("target", tensors, MEAN, False))  # 24 / 4


@pytest.mark.parametrize("log_target", [False, True])
def test_the_masked_variants_leave_the_sum_over_stretched_axes_to_the_caller(
    log_target: bool,
) -> None:
    tensors = drawn((4, 6), (4, 6), (1, 6), log_target=log_target)
    found = compute(COMMUNITY, **tensors, reduction=NONE, log_target=log_target)
    assert found.shape == (4, 6)
    expected = kl_gradient("target", tensors, NONE, log_target)
    assert_equal_in_double(found.sum(0, keepdims=True), expected)


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("reduction", [NONE, MEAN, SUM, BATCHMEAN])
@pytest.mark.parametrize(("operator", "of"), GRADIENTS, ids=title)
def test_float32_gradients_of_a_torch_model_are_those_of_torch(
    operator: Any, of: str, reduction: int, log_target: bool
) -> None:
    shape = (8, 16) if reduction == NONE else ()
    tensors = drawn(shape, (8, 16), (8, 16), log_target=log_target)
    single = {name: array.astype(np.float32) for name, array in tensors.items()}
    attributes = attributes_of(operator, {"reduction": reduction, "log_target": log_target})
    found = compute(operator, **single, **attributes)
    assert found.dtype == np.float32
    expected = kl_gradient(of, single, reduction, log_target)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert torch.from_numpy(found).dtype == torch.float32
