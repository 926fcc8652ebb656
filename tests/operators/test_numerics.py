"""The functions of numerics that NumPy has not, or not so quick: sigmoid, a choice by bits."""

import math
from typing import Any

import numpy as np
from tests.rows import each

from npucall.operators._numerics import chosen, gated, normal_distribution, row_sums, sigmoid

INF, NAN = np.inf, np.nan


def numbers() -> Any:
    """Of float32, at which squares are exact in float64, and dense around 0."""
    random = np.random.default_rng(2)
    drawn = [random.normal(size=2000), np.linspace(-37, 37, 3001), np.linspace(-0.01, 0.01, 101)]
    return np.concatenate([*drawn, [1e-30, -1e-30, 0.0]]).astype(np.float32)


def test_the_distribution_is_that_of_erfc_with_the_digits_of_float64() -> None:
    x = numbers()
    found, _ = normal_distribution(x)
    # erfc's own argument is off by 2 * 2^-53, which below 0 costs x^2 times that
    expected = np.array([math.erfc(-v / math.sqrt(2)) / 2 for v in map(float, x)])
    error = np.abs(found - expected) / expected
    assert (error <= 2.0**-53 * (6 + np.where(x < 0, 2 * x.astype(np.float64) ** 2, 0))).all()


def test_the_distribution_is_that_of_erf_around_0() -> None:
    x = numbers()[np.abs(numbers()) < 1]
    found, _ = normal_distribution(x)
    expected = [(1 + math.erf(v / math.sqrt(2))) / 2 for v in map(float, x)]
    np.testing.assert_allclose(found, expected, rtol=6 * 2.0**-53)


def test_the_density_is_that_of_the_normal_distribution() -> None:
    x = numbers()
    _, found = normal_distribution(x)
    expected = [math.exp(-v * v / 2) / math.sqrt(2 * math.pi) for v in map(float, x)]
    np.testing.assert_allclose(found, expected, rtol=6 * 2.0**-53)


def test_distribution_and_density_of_special_numbers() -> None:
    with np.errstate(all="ignore"):
        distribution, density = normal_distribution(np.array([-INF, -1e30, 0, 1e30, INF, NAN]))
    np.testing.assert_allclose(distribution, [0, 0, 0.5, 1, 1, NAN], rtol=1e-15)
    np.testing.assert_array_equal(density[[0, 1, 3, 4, 5]], [0, 0, 0, 0, NAN])


def test_both_sides_of_the_distribution_add_up_to_1() -> None:
    x = np.linspace(0, 8, 400)
    np.testing.assert_allclose(
        normal_distribution(x)[0] + normal_distribution(-x)[0], 1, rtol=1e-15
    )


@each("dtype", [np.float32, np.float64])
def test_the_sigmoid_is_accurate_on_both_sides_without_overflow(dtype: Any) -> None:
    x = np.linspace(-80, 80, 2001).astype(dtype)
    with np.errstate(over="raise"):
        found = sigmoid(x)
    assert found.dtype == dtype
    expected = [math.exp(v) / (1 + math.exp(v)) for v in map(float, x)]
    np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(dtype).eps)


@each("dtype", [np.float32, np.float64])
def test_the_sigmoid_of_special_numbers(dtype: Any) -> None:
    with np.errstate(under="ignore"):
        found = sigmoid(np.array([-INF, -1e30, 0, 1e30, INF, NAN], dtype))
    np.testing.assert_array_equal(found, [0, 0, 0.5, 1, 1, NAN])


def test_what_is_chosen_broadcasts() -> None:
    mask, one = np.array([[True], [False]]), np.array([1, 2, 3], np.float32)
    found = chosen(mask, one, np.zeros((2, 1), np.float32))
    np.testing.assert_array_equal(found, [[1, 2, 3], [0, 0, 0]])


@each("dtype", [np.float32, np.float64])
def test_a_gated_value_keeps_its_digits_where_the_gate_is_nearly_closed(dtype: Any) -> None:
    # The power of e is infinite in float32 below -88.7; the way changes at -85.
    gates = np.concatenate([np.linspace(-150, 90, 4801), np.linspace(-85.01, -84.99, 101)])
    gates = gates.astype(dtype)
    values = np.full_like(gates, 1e30)
    with np.errstate(all="ignore"):
        found = gated(values, gates).astype(np.float64)
    wide = gates.astype(np.float64)
    expected = values.astype(np.float64) * np.exp(-np.logaddexp(0, -wide))
    np.testing.assert_allclose(found, expected, rtol=max(8 * np.finfo(dtype).eps, 2e-14))


def test_a_gated_value_is_computed_where_it_belongs() -> None:
    gates, out = np.array([-100, 1], np.float32), np.empty(2, np.float32)
    with np.errstate(all="ignore"):
        assert gated(gates, gates, out) is out
        assert out.tobytes() == gated(gates, gates).tobytes()


def test_special_values_behind_gates() -> None:
    values = np.array([2, 2, INF, INF, NAN, 2], np.float32)
    gates = np.array([INF, -INF, INF, -INF, 0, NAN], np.float32)
    with np.errstate(all="ignore"):
        found = gated(values, gates)
    np.testing.assert_array_equal(found, np.array([2, 0, INF, NAN, NAN, NAN], np.float32))


@each("kind", [np.float32, np.float64, np.int8, np.uint8, np.int16, np.int64])
def test_what_is_chosen_has_the_bits_of_either(kind: Any) -> None:
    random = np.random.default_rng(3)
    one, other = (random.integers(0, 256, (9, 40), np.uint8).view(kind) for _ in range(2))
    condition = random.random(one.shape) < 0.5
    number = one[0, 0]
    for first, second in ((one, other), (number, other)):
        expected = np.where(condition, first, second)
        assert chosen(condition, first, second).tobytes() == expected.tobytes()
        place = np.empty_like(other)
        assert chosen(condition, first, second, out=place) is place
        assert place.tobytes() == expected.tobytes()


@each("kind", [np.float32, np.float64])
def test_the_sigmoid_goes_where_it_is_told(kind: Any) -> None:
    x = np.linspace(-9, 9, 99).astype(kind)
    place = np.empty_like(x)
    assert sigmoid(x, out=place) is place
    np.testing.assert_array_equal(place, sigmoid(x))


def test_sums_of_rows_are_off_by_a_few_units_of_their_terms_also_where_these_are_alike() -> None:
    alike = np.full(5000, 1.1, np.float32)
    for length in (0, 1, 512, 1000, 1024, 1025, 5000):
        rows = np.stack([alike, np.resize(numbers(), 5000)])[:, :length]
        factors = np.resize(np.float32([1.7, -0.3, 2]), length)
        for others in (None, factors, rows):
            found = row_sums(rows, others)
            terms = rows.astype(np.float64) * (1 if others is None else others)
            error = np.abs(found[:, 0] - terms.sum(-1))
            assert found.shape == (2, 1)
            assert found.dtype == np.float32
            assert (error <= 16 * 2.0**-24 * np.abs(terms).sum(-1)).all(), length
