"""Activations that bend or end somewhere, and their gradients: integers, ends, digits."""

from typing import Any

import numpy as np
import pytest
from tests.rows import each

import npucall_client
from npucall.declare.parameters import Scalar
from npucall.dtypes import INT64
from npucall.operators.elu import elu
from npucall.operators.hardsigmoid import hardsigmoid
from npucall.operators.hardsigmoid_backward import hardsigmoid_backward
from npucall.operators.hardswish import hardswish
from npucall.operators.hardswish_backward import hardswish_backward
from npucall.operators.hardswish_backward_v2 import hardswish_backward_v2
from npucall.operators.hardtanh import hardtanh
from npucall.operators.hardtanh_backward import hardtanh_backward
from npucall.operators.prelu import prelu
from npucall.operators.prelu_backward import prelu_backward
from npucall.operators.softplus import softplus
from npucall.operators.threshold import threshold
from npucall.operators.threshold_backward import threshold_backward

from .calls import FLOATS, INF, LOCAL, refusal


def test_elu_near_0_loses_nothing() -> None:
    x = -np.logspace(-30, 0, 200).astype(np.float32)
    found = LOCAL.run(elu, x, 1.0, 1.0, 1.0)
    np.testing.assert_allclose(found, np.expm1(x.astype(np.float64)), rtol=2**-22)


@each("x", [-2.0, 0.5, 3.0])
def test_factors_whose_product_is_beyond_float32_spoil_no_positive_number(x: float) -> None:
    found = LOCAL.run(elu, np.array([x], np.float32), 1e20, 1e20, 1.0)
    expected = -INF if x < 0 else np.float32(x) * np.float32(1e20)
    np.testing.assert_array_equal(found, [expected])


def test_softplus_far_below_0_loses_nothing() -> None:
    x = np.linspace(-100, 0, 201, dtype=np.float32)
    found, expected = LOCAL.run(softplus, x, 1.0, 20.0), np.log1p(np.exp(x.astype(np.float64)))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2.0**-149)


@each("kind", [np.int8, np.int16, np.int32, np.int64])
def test_the_ends_of_integers_lose_their_fraction(kind: Any) -> None:
    x = np.array([-9, -3, -2, -1, 0, 4, 5, 9], kind)
    found = LOCAL.run(hardtanh, x, -2.75, 4.75)
    assert found.dtype == kind
    assert found.tolist() == [-2, -2, -2, -1, 0, 4, 4, 4]


@each("beyond", [2**24, 2**53, 2**62])
def test_int64_is_exact_in_its_ends_too(beyond: int) -> None:
    x = np.array([-(2**63), beyond, beyond + 1, beyond + 2, beyond + 3, 2**63 - 1])
    found = LOCAL.run(hardtanh, x, beyond + 1, beyond + 2)
    assert found.tolist() == [beyond + n for n in (1, 1, 1, 2, 2, 2)]


@each("kind", [*FLOATS, np.float64])
def test_the_ends_count_in_the_dtype_of_self(kind: Any) -> None:
    found = LOCAL.run(hardtanh, np.array([-1, 1], kind), -0.1, 0.1)
    np.testing.assert_array_equal(found, np.array([-0.1, 0.1], kind))


def test_ends_out_of_order_that_pass_as_integers_give_the_upper_one() -> None:
    found = LOCAL.run(hardtanh, np.array([-3, -0.25, 2], np.float32), 0, -0.5)
    np.testing.assert_array_equal(found, [-0.5] * 3)


def test_the_gradient_uses_its_ends_as_float32() -> None:
    x = np.array([-0.1, 0.1, np.nextafter(np.float32(0.1), np.float32(0))], np.float32)
    # As float64 0.1 is less than float32(0.1), and -0.1 more: the ends would count otherwise.
    found = LOCAL.run(hardtanh_backward, np.ones(3, np.float32), x, -0.1, 0.1)
    assert found.tolist() == [0, 0, 1]


def test_hardsigmoid_of_int32_is_1_from_3_on_and_else_0() -> None:
    x = np.array([-(2**31), -3, -1, 0, 1, 2, 3, 4, 2**24 + 1, 2**31 - 1], np.int32)
    found = LOCAL.run(hardsigmoid, x)
    assert found.dtype == np.int32
    assert found.tolist() == [0] * 6 + [1] * 4


def test_the_largest_float_below_3_has_a_gradient_as_on_atlas_a2() -> None:
    x = np.nextafter(np.array([3, -3], np.float32), np.float32(0))
    found = LOCAL.run(hardsigmoid_backward, np.ones(2, np.float32), x)
    np.testing.assert_array_equal(found, np.array([1 / 6, 1 / 6], np.float32))


def test_hardswish_of_a_number_whose_sixfold_is_infinite_is_itself() -> None:
    x = np.array([1e38, 3e38], np.float32)
    np.testing.assert_array_equal(LOCAL.run(hardswish, x), x)


@each("kind", FLOATS)
def test_next_to_the_ends_both_versions_of_the_gradient_are_one(kind: Any) -> None:
    three = np.array([3], kind)
    step = np.array([-1, 1], np.int16 if three.itemsize == 2 else np.int32)
    beside = (three.view(step.dtype) + step).view(kind)  # the neighbours of 3
    x = np.concatenate([beside, -beside])
    first, second = (
        LOCAL.run(operator, np.ones_like(x), x).tolist()
        for operator in (hardswish_backward, hardswish_backward_v2)
    )
    assert first == second
    assert first == [pytest.approx(1.5, rel=2**-7), 1, pytest.approx(-0.5, rel=2**-5), 0]


@each("beyond", [2**24, 2**53, 2**62])
def test_int64_is_exact_in_its_threshold_and_value_too(beyond: int) -> None:
    x = np.array([beyond - 1, beyond, beyond + 1, beyond + 2])
    found = LOCAL.run(threshold, x, beyond + 1, -beyond - 1)
    assert found.tolist() == [-beyond - 1, -beyond - 1, -beyond - 1, beyond + 2]


@each("given of_negative", [(-0.5, 9), (-1.0, 9), (-1.5, 9), (-2, -1)])
def test_the_threshold_of_integers_loses_its_fraction(given: float, of_negative: int) -> None:
    x = np.array([-1, 0, 1], np.int32)
    found = LOCAL.run(threshold, x, given, 9)  # -0.5 becomes 0, -1.5 becomes -1
    assert found.tolist() == [of_negative, 9 if given == -0.5 else 0, 1]


@each("kind", FLOATS)
def test_threshold_and_value_count_in_the_dtype_of_self(kind: Any) -> None:
    found = LOCAL.run(threshold, np.array([0.1], kind), 0.1, 0.7)  # as float64 one of them is less
    np.testing.assert_array_equal(found, np.array([0.7], kind))


def test_an_integer_that_does_not_fit_wraps_as_in_c() -> None:
    x = np.array([0, 100], np.int8)
    assert LOCAL.run(threshold, x, Scalar(INT64, 256 + 5), Scalar(INT64, 300)).tolist() == [44, 100]


def test_the_gradient_counts_a_fraction_below_0_for_integers_unlike_torch() -> None:
    x = np.array([-1, 0, 1], np.int32)
    found = LOCAL.run(threshold_backward, x + 5, x, threshold=-0.5)
    np.testing.assert_array_equal(found, [0, 5, 6])  # torch has 0 for the second: -0.5 becomes 0


@each("number", [0, 7])
def test_the_gradient_of_int32_is_exact_beyond_2_to_the_24(number: float) -> None:
    g = np.array([2**24 + 1, 2**31 - 1, -(2**31)], np.int32)
    found = LOCAL.run(threshold_backward, g, g, threshold=number)
    np.testing.assert_array_equal(found, [*g[:2], 0])


def test_the_gradient_of_int64_is_exact_on_ascend_950() -> None:
    g, x = np.array([2**53 + 1, 3, 4]), np.array([1, 0, -1])
    with npucall_client.connect("local:", soc="Ascend950PR_9589") as on_950:
        assert on_950.run(threshold_backward, g, x, threshold=0).tolist() == [2**53 + 1, 0, 0]


@each("shape weight", [((3,), (3,)), ((3, 2), (3,)), ((), (0,))])
def test_channels_are_the_second_dimension(shape: Any, weight: Any) -> None:
    shapes = {"self": shape, "out": shape, "weight": weight}
    answer = refusal(prelu, {name: {"shape": each} for name, each in shapes.items()})
    assert answer is not None
    assert answer[2] == ("weight", "self")


@each(
    "shape weight of_weight passes",
    [
        ((2, 3, 4), (1, 3, 1), (3,), True),
        ((2, 3, 4), (1, 3, 1), (1, 3, 1), False),
        ((2, 3, 4), (1, 1), (1, 1), True),
        ((2, 3, 4), (1, 1), (1,), False),
        ((2, 3, 4), (1,), (3,), False),
        ((3,), (1,), (1,), True),
        ((), (), (), True),
    ],
)
def test_the_weights_gradient_is_a_list_unless_it_is_one_element(
    shape: Any, weight: Any, of_weight: Any, passes: bool
) -> None:
    shapes = {"weight": weight, "grad_weight": of_weight}
    shapes |= dict.fromkeys(("self", "grad_output", "grad_input"), shape)
    answer = refusal(prelu_backward, {name: {"shape": each} for name, each in shapes.items()})
    assert (answer is None) is passes
    assert passes or answer[2] == ("grad_weight",)  # type: ignore[index]


def test_the_terms_of_the_weights_gradient_are_summed_in_float64() -> None:
    g = np.array([[-(2**25)], [1], [2**25]], np.float32)  # in float32 the 1 would be lost
    _, grad_weight = LOCAL.run(prelu_backward, g, -np.ones_like(g), g[1])
    assert grad_weight.tolist() == [-1]
