"""Sums and means along dimensions, and the matrix product: integers, what is rounded, blocks."""

from typing import Any

import numpy as np
import pytest
from tests.rows import each

import npucall_client
from npucall.declare.call import Call
from npucall.declare.prepare import prepare
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT16,
    INT32,
    INT64,
)
from npucall.errors import PARAM_INVALID, DTypeError
from npucall.operators import CATALOGUE
from npucall.operators.matmul import COLUMNS, INNER, ROWS, matmul
from npucall.operators.mean import mean
from npucall.operators.reduce_sum import reduce_sum
from npucall.products import A2
from npucall.tensors import TensorSpec

from .calls import INF, LOCAL, NAN, numbers, refusal, run

SHORT = (np.float16, BF16.numpy.type)


def total(array: Any, dims: Any = (), kind: Any = None) -> Any:
    return LOCAL.run(reduce_sum, array, dims, False, array.dtype if kind is None else kind)


def average(array: Any, dim: Any = (), kind: Any = None) -> Any:
    return LOCAL.run(mean, array, dim, dtype=array.dtype if kind is None else kind)


def test_sums_and_means_are_taken_of_all_in_float_unless_it_is_told() -> None:
    found = LOCAL.run(reduce_sum, np.arange(6).reshape(2, 3))
    assert (found.dtype, found.shape, found.item()) == (np.float32, (), 15)
    found = LOCAL.run(mean, np.arange(6).reshape(2, 3))
    assert (found.dtype, found.shape, found.item()) == (np.float32, (), 2.5)


def test_sums_of_integers_wrap_around_and_lose_nothing() -> None:
    assert total(np.array([100, 100, 56], np.int8)) == 0
    assert total(np.array([2**62, 2**62 - 1, 2**62])) == 2**62 + 2**63 - 1 - 2**64
    assert total(np.array([250, 10], np.uint8), kind=np.int64) == 260


def test_of_truth_values_the_sum_is_whether_any_is_true() -> None:
    table = np.array([[0, 0, 0], [0, 2, -2], [0, 300, 256]], np.int32)
    assert total(table, (1,), np.bool_).tolist() == [False, True, True]
    assert total(table, (0,), np.bool_).tolist() == [False, True, True]
    assert total(np.array([True, True, False]), kind=np.int32) == 2


def test_what_is_summed_is_converted_first() -> None:
    assert total(np.array([0.75, 1.5], np.float32), kind=np.int32) == 1
    assert total(np.array([2049, -2048]), kind=np.float16) == 0  # 2049 is 2048 there


@each("kind", SHORT)
def test_nothing_is_rounded_before_the_sum(kind: Any) -> None:
    assert total(np.array([1, 2.0**-9, 2.0**-9], kind)) == kind(1 + 2.0**-8)
    assert total(np.full(4097, 0.5, kind)) == kind(2048.5)


def test_sums_beyond_the_dtype_are_infinite_and_partial_ones_are_not() -> None:
    assert total(np.array([60000, 60000, -60000], np.float16)) == 60000
    assert total(np.array([60000, 60000], np.float16)) == INF
    assert total(np.array([3e38, 3e38], np.float32)) == INF


@each("shape", [(100_003,), (7, 20_011), (20_011, 7), (300, 5, 70)])
def test_long_sums_are_as_good_as_in_float64(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(3).random(shape, np.float32)
    for dims in [(), *((dim,) for dim in range(len(shape)))]:
        exact = array.sum(dims or None, np.float64)
        np.testing.assert_allclose(total(array, dims), exact, rtol=2**-22)


@pytest.mark.filterwarnings("error")
def test_complex_numbers_are_summed_as_such_or_their_real_parts() -> None:
    assert total(np.array([1 + 2j, 3 - 5j], np.complex64), kind=np.float16) == 4
    assert total(np.array([1 + 2j, 3 - 5j], np.complex64)) == 4 - 3j


@each("shape", [(0,), (0, 3), (2, 0)])
def test_of_nothing_the_sum_is_0_in_any_shape(shape: tuple[int, ...]) -> None:
    found = total(np.zeros(shape, np.float32), (0,))
    assert (found.shape, found.tolist()) == (shape[1:], np.zeros(shape[1:]).tolist())
    out = np.full((4, 2), 7, np.int32)
    given = {"self": np.zeros(shape, np.float32), "dims": (0,), "dtype": np.int32}
    assert not run(reduce_sum, given, out=out).any()


def test_one_element_fits_any_shape_of_one() -> None:
    for shape in ((), (1,), (1, 1, 1)):
        assert refusal(reduce_sum, {"dims": (), "out": {"shape": shape}}) is None


def test_of_the_mean_of_integers_the_fraction_is_dropped_and_no_more() -> None:
    for count in (3, 49, 93, 1000, 99_991):
        for whole in (-7, -1, 0, 1, 5, 2**20):
            exact = np.full(count, whole)
            assert average(exact) == whole
            exact[0] += count - 1 if whole >= 0 else 1 - count
            assert average(exact) == whole


@each("kind largest", [(np.float16, 60000), (BF16.numpy.type, 1e35)])
def test_a_sum_beyond_the_dtype_has_a_mean_within(kind: Any, largest: float) -> None:
    assert average(np.full(1000, kind(largest))) == kind(largest)


def test_means_of_doubles_and_complex_numbers_have_all_their_bits() -> None:
    random = np.random.default_rng(4).random(1000)
    np.testing.assert_allclose(average(random), random.mean(), rtol=1e-15)
    found = average(random + 2j * random)
    np.testing.assert_allclose(found, random.mean() * (1 + 2j), rtol=1e-15)


@each(
    "self asked out passes",
    [
        (INT64, FLOAT16, DOUBLE, True),
        (FLOAT, FLOAT16, FLOAT, True),
        (FLOAT, COMPLEX64, COMPLEX128, True),
        (INT32, INT64, FLOAT16, True),
        (INT64, INT32, INT32, True),
        (COMPLEX64, COMPLEX64, FLOAT, False),
        (FLOAT, COMPLEX64, FLOAT, False),
    ],
)
def test_self_is_cast_to_dtype_and_that_to_the_output(
    self: Any, asked: Any, out: Any, passes: bool
) -> None:
    changes = {"self": {"dtype": self}, "dtype": asked, "out": {"dtype": out}}
    answer = (DTypeError, PARAM_INVALID, ("out",))
    assert refusal(mean, changes) == (None if passes else answer)


def test_a_sum_may_be_of_truth_values_and_of_int32() -> None:
    for kind in (BOOL, INT32):
        assert refusal(reduce_sum, {"dtype": kind, "out": {"dtype": kind}}) is None


@each(
    "first second kind",
    [
        ((ROWS + 3, 5), (5, 7), np.float16),
        ((3, 5), (5, COLUMNS + 2), np.float16),
        ((2, INNER + 5), (INNER + 5, 3), np.float16),
        ((ROWS + 1, 2 * INNER + 1), (2 * INNER + 1, COLUMNS + 1), np.float32),
        ((3000, 4, 9), (9, 5), np.float32),
        ((2 * INNER,), (2 * INNER,), np.float32),
    ],
)
def test_products_of_several_blocks_have_no_seams(first: Any, second: Any, kind: Any) -> None:
    one, other = numbers(first, second, dtype=kind, largest=1)
    found = LOCAL.run(matmul, one, other)
    exact = np.matmul(one.astype(np.float64), other.astype(np.float64))
    unit = float(np.finfo(np.float32).eps) if kind is np.float32 else 2.0**-8
    assert found.dtype == kind
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=unit * 4, atol=1e-4)


def test_short_floats_are_multiplied_in_float32_and_rounded_once() -> None:
    row = np.array([[2048, 1, 1]], np.float16)  # in FLOAT16 the ones would be lost
    assert LOCAL.run(matmul, row, np.ones((3, 1), np.float16)).tolist() == [[2050]]
    large = np.array([[300, -300]], np.float16)
    found = LOCAL.run(matmul, large, np.array([[300], [299]], np.float16))
    assert found.tolist() == [[300]]


def test_special_numbers_stay_in_their_rows_and_columns() -> None:
    one = np.array([[1, NAN], [INF, 1], [1, 2]], np.float32)
    found = LOCAL.run(matmul, one, np.array([[1, 0], [1, 1]], np.float32))
    np.testing.assert_array_equal(found, [[NAN, NAN], [INF, NAN], [3, 2]])


def kernel(kind: int, soc: str, dtype: Any = FLOAT) -> Any:
    arrays = [np.ones(shape, dtype.numpy) for shape in ((2, 3), (3, 4))]
    with npucall_client.connect("local:", soc=soc) as client:
        return client.plan(matmul, *arrays, kind).kernel_dtype


def test_a_lower_precision_rounds_float_to_float16_where_the_product_has_no_other() -> None:
    newer, older = "Ascend910B1", "Ascend910A"
    assert [kernel(n, newer) for n in range(5)] == [FLOAT, FLOAT, FLOAT16, FLOAT, FLOAT]
    assert [kernel(n, older) for n in (1, 2, 4)] == [FLOAT16, FLOAT16, FLOAT]
    assert kernel(2, newer, BF16) is BF16
    one = np.array([[1 + 2.0**-12]], np.float32)
    assert LOCAL.run(matmul, one, one, 2).tolist() == [[1]]
    assert LOCAL.run(matmul, one, one, 0)[0, 0] > 1


def test_the_products_count_as_what_is_computed() -> None:
    specs = {"self": TensorSpec(FLOAT, (5, 6, 20)), "mat2": TensorSpec(FLOAT, (20, 40))}
    call = Call(matmul, {**specs, "cube_math_type": 0}, tuple(specs))
    assert prepare(call, A2, CATALOGUE).computation == 5 * 6 * 20 * 40
