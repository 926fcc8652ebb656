"""Sums, differences, products and quotients: in which dtype they are computed, and what is lost."""

from typing import Any

import numpy as np
from tests.rows import each

from npucall.declare.parameters import Scalar
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT8_E5M2,
    FLOAT16,
    INT8,
    INT32,
    INT64,
    DType,
)
from npucall.errors import PARAM_INVALID, DTypeError, ShapeError
from npucall.operators.add import add, inplace_add
from npucall.operators.div import div, inplace_div
from npucall.operators.floor_divide import inplace_floor_divide
from npucall.operators.mul import inplace_mul, mul
from npucall.operators.muls import inplace_muls, muls
from npucall.operators.sub import sub
from npucall_conformance.stating.statement import LEFT_OUT

from .calls import INF, LOCAL, NAN, refusal

SHORT = (np.float16, BF16.numpy.type)


@each("operator", [add, sub])
def test_alpha_is_converted_to_the_promoted_dtype(operator: Any) -> None:
    one = np.zeros(1, np.float16)
    assert LOCAL.run(operator, one, one + 1, 0.1)[0] in (np.float16(0.1), -np.float16(0.1))
    wide = LOCAL.run(operator, np.zeros(1), np.ones(1), 0.1)
    assert abs(wide[0]) == 0.1  # all 53 bits
    assert abs(LOCAL.run(operator, one.astype(np.int8), np.ones(1, np.int8), 257)[0]) == 1


INTEGERS = {INT8, INT32, INT64, BOOL}
REALS = {*INTEGERS, FLOAT, DOUBLE, FLOAT16}


@each(
    "promoted alphas",
    [
        ((INT32, INT8), INTEGERS),
        ((BOOL, BOOL), INTEGERS),
        ((FLOAT, INT8), REALS),
        ((COMPLEX64, INT8), {*REALS, COMPLEX64}),
    ],
)
@each("operator", [add, sub])
def test_alpha_has_a_dtype_that_can_be_cast_to_the_promoted_one(
    operator: Any, promoted: tuple[DType, DType], alphas: set[Any]
) -> None:
    one, other = promoted
    pair = {"self": {"dtype": one}, "other": {"dtype": other}, "out": LEFT_OUT}
    every = {*REALS, COMPLEX64}
    taken = {
        kind for kind in every if refusal(operator, {**pair, "alpha": Scalar(kind, 1)}) is None
    }
    assert taken == alphas


@each("kind fraction", [(np.float16, 13), (BF16.numpy.type, 16)])
def test_the_product_with_alpha_is_not_rounded_before_the_sum(kind: Any, fraction: int) -> None:
    unit = float(np.spacing(np.array(1, np.float32))) * 2.0**fraction
    other = np.array([1 + unit], kind)
    # (1 + u)^2 = 1 + 2u + u^2: rounded before, the sum would be 0.
    found = LOCAL.run(add, np.array([-(1 + 2 * unit)], kind), other, 1 + unit)
    assert float(found[0]) == unit**2


def test_inputs_of_a_product_are_converted_to_their_promoted_dtype_first() -> None:
    found = LOCAL.run(mul, np.array([1], np.float16), np.array([2049]))
    assert (found.dtype, found.tolist()) == (np.float16, [2048])
    found = LOCAL.run(mul, np.array([200], np.uint8), np.array([-2], np.int8))
    assert (found.dtype, found.tolist()) == (np.int16, [-400])
    assert LOCAL.run(mul, np.array([True]), np.array([True])).tolist() == [True]


@each("kind", [np.int8, np.uint8, np.int32, np.int64, np.bool_])
def test_a_quotient_of_integers_is_a_float(kind: Any) -> None:
    one, other = np.array([7, 1, 0]).astype(kind), np.array([2, 0, 0]).astype(kind)
    found = LOCAL.run(div, one, other)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [1 if kind is np.bool_ else 3.5, INF, NAN])
    half = LOCAL.options(outputs={"out": np.empty(3, np.float16)}).run(div, one, other)
    np.testing.assert_array_equal(half, found.astype(np.float16))


def test_integers_beside_a_float_are_converted_to_it_before_they_are_divided() -> None:
    found = LOCAL.run(div, np.array([4098], np.int32), np.array([2], np.float16))
    assert (found.dtype, found.tolist()) == (np.float16, [2048])  # 4098 is 4096 there


@each(
    "self other out expected",
    [
        (FLOAT, Scalar(DOUBLE, 2.0), None, FLOAT),
        (FLOAT16, Scalar(DOUBLE, 2.0), None, FLOAT16),
        (BF16, Scalar(FLOAT, 2.0), None, BF16),
        (BF16, Scalar(FLOAT16, 2.0), None, BF16),
        (INT8, Scalar(INT64, 2), None, INT8),
        (INT8, Scalar(BOOL, value=True), None, INT8),
        (BOOL, Scalar(INT8, 2), None, INT8),
        (BOOL, Scalar(BOOL, value=True), None, BOOL),
        (INT32, Scalar(FLOAT16, 2.0), None, FLOAT16),
        (INT32, Scalar(FLOAT, 2.0), None, FLOAT),
        (INT32, Scalar(DOUBLE, 2.0), None, DOUBLE),
        (FLOAT, Scalar(COMPLEX64, 2), None, COMPLEX64),
        (COMPLEX64, Scalar(COMPLEX128, 2), None, COMPLEX64),
        (FLOAT16, Scalar(FLOAT8_E5M2, 2.0), None, FLOAT16),
        (INT32, Scalar(FLOAT8_E5M2, 2.0), None, INT32),  # it promotes with nothing
        (INT32, Scalar(DOUBLE, 2.0), FLOAT, FLOAT),  # beside an output of FLOAT
        (INT32, Scalar(DOUBLE, 2.0), FLOAT16, DOUBLE),
    ],
)
def test_the_product_has_the_dtype_of_the_tensor_unless_the_number_is_of_another_kind(
    self: DType, other: Any, out: DType | None, expected: DType
) -> None:
    given = {"out": np.empty(2, out.numpy)} if out else {}
    plan = LOCAL.options(outputs=given).plan(muls, np.ones(2, self.numpy), other)
    assert plan.kernel_dtype is expected


def test_the_number_is_converted_to_the_integers_of_the_tensor() -> None:
    found = LOCAL.run(muls, np.array([64, -128, 5], np.int8), 258)  # which is 2
    assert (found.dtype, found.tolist()) == (np.int8, [-128, 0, 10])
    assert LOCAL.run(muls, np.array([True, False]), 3).tolist() == [3, 0]


@each("kind", SHORT)
def test_beside_a_short_float_the_number_is_rounded_to_float_alone(kind: Any) -> None:
    x = np.array([3], kind)
    expected = (x.astype(np.float32) * np.float32(1.0009)).astype(kind)
    assert LOCAL.run(muls, x, 1.0009).tolist() == expected.tolist()


def test_beside_a_double_the_number_keeps_all_its_bits() -> None:
    assert LOCAL.run(muls, np.ones(1), 0.1).tolist() == [0.1]
    assert LOCAL.run(muls, np.ones(1, np.float32), 0.1).tolist() == [float(np.float32(0.1))]


def test_a_sum_in_place_is_computed_in_the_promoted_dtype_and_has_that_of_self() -> None:
    other = np.array([0.5 + 2.0**-13], np.float32)
    found = LOCAL.run(inplace_add, np.array([2048], np.float16), other, 2)
    # Between 2048 and 2050; with other as a FLOAT16, which is 0.5, it would be a tie, and 2048.
    assert (found.dtype, found.tolist()) == (np.dtype(np.float16), [2050])
    number = LOCAL.run(inplace_add, np.array(5, np.int64), np.array(2**53 + 1), 1)
    assert (number.shape, number.tolist()) == ((), 2**53 + 6)


@each("operator", [inplace_add, inplace_mul, inplace_div, inplace_floor_divide])
@each("own other", [((3,), (2, 3)), ((1, 3), (3, 3)), ((), (1,))])
def test_what_self_and_another_tensor_in_place_broadcast_to_has_the_shape_of_self(
    operator: Any, own: tuple[int, ...], other: tuple[int, ...]
) -> None:
    shapes = {"self_ref": {"shape": own}, "other": {"shape": other}}
    assert refusal(operator, shapes) == (ShapeError, PARAM_INVALID, ("self_ref",))
    assert refusal(operator, {"self_ref": {"shape": other}, "other": {"shape": own}}) is None


@each(
    "operator own other",
    [
        (inplace_add, INT32, {"other": {"dtype": FLOAT}}),
        (inplace_add, BOOL, {"other": {"dtype": INT8}, "alpha": Scalar(INT8, 1)}),
        (inplace_mul, DOUBLE, {"other": {"dtype": COMPLEX64}}),
        (inplace_div, INT32, {"other": {"dtype": INT32}}),
        (inplace_floor_divide, BOOL, {"other": {"dtype": BOOL}}),
        (inplace_muls, INT64, {"other": Scalar(FLOAT, 2.0)}),
        (inplace_muls, BOOL, {"other": Scalar(INT8, 2)}),
    ],
)
def test_a_result_that_self_cannot_hold_is_refused_in_place(
    operator: Any, own: DType, other: dict[str, Any]
) -> None:
    found = refusal(operator, {"self_ref": {"dtype": own}, **other})
    assert found == (DTypeError, PARAM_INVALID, ("self_ref",))


def test_shapes_are_compared_before_dtypes_in_place_as_the_software_does() -> None:
    both = {"self_ref": {"shape": (3,), "dtype": INT32}, "other": {"shape": (2, 3)}}
    order = {
        operator.name: refusal(operator, both)
        for operator in (inplace_add, inplace_floor_divide, inplace_mul, inplace_div)
    }
    assert {name: found and found[0] for name, found in order.items()} == {
        "aclnnInplaceAdd": ShapeError,
        "aclnnInplaceFloorDivide": ShapeError,
        "aclnnInplaceMul": DTypeError,
        "aclnnInplaceDiv": ShapeError,
    }
