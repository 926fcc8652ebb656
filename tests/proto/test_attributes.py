"""npucall.declare.attributes: what Python callers give, and the value that the C type holds."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.rows import each

from npucall.declare.attributes import attribute_value, check_range
from npucall.declare.parameters import Attribute, Kind, Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8
from npucall.errors import AttributeValueError


class Reduction(IntEnum):
    MEAN = 1


class Approximate(StrEnum):
    TANH = "tanh"


def converted(kind: Kind, given: Any) -> Any:
    return attribute_value("a", Attribute("a", kind, "any"), given)


@each(
    ("given", "dtype", "value"),
    [
        (True, BOOL, True),
        (7, INT64, 7),
        (-(2**63), INT64, -(2**63)),
        (0.1, DOUBLE, 0.1),
        (np.float64(0.1), DOUBLE, 0.1),
        (np.float32(0.1), FLOAT, 0.10000000149011612),
        (np.float16(0.1), FLOAT16, 0.0999755859375),
        (ml_dtypes.bfloat16(0.1), BF16, 0.10009765625),
        (np.int8(-3), INT8, -3),
        (np.uint8(200), UINT8, 200),
        (np.bool_(True), BOOL, True),
        (np.array(0.5, np.float32), FLOAT, 0.5),
        (np.complex64(1 + 2j), COMPLEX64, 1 + 2j),
        (Scalar(FLOAT16, 2.5), FLOAT16, 2.5),
        (Scalar(INT8, -128), INT8, -128),
    ],
)
def test_a_number_is_an_aclscalar_of_the_dtype_that_it_has(
    given: Any, dtype: Any, value: Any
) -> None:
    found = converted(Kind.SCALAR, given)
    assert (found.dtype, found.value) == (dtype, value)
    assert type(found.value) is type(value)


@each(
    "given",
    [
        2**63,
        1 + 2j,
        "1",
        None,
        np.ones(1),
        [1],
        np.array("1"),
        Scalar(INT8, 128),
        Scalar(UINT8, -1),
        Scalar(INT32, 1.5),
    ],
)
def test_what_is_no_number_of_a_dtype_is_no_aclscalar(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a number, found") as caught:
        converted(Kind.SCALAR, given)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("a", None)


@each("given", [1, np.int8(1), np.array(1), Reduction.MEAN, np.uint64(1), True])
def test_an_integer_of_any_type_is_an_int(given: Any) -> None:
    found = converted(Kind.INT64, given)
    assert (found, type(found)) == (1, int)


@each("given", [np.True_, 1.0, "1", 2**63, None, np.float32(1)])
def test_what_is_no_integer_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected an integer of 64 bits"):
        converted(Kind.INT64, given)


@each("kind", [Kind.FLOAT, Kind.DOUBLE])
@each("given", [2, 2.0, np.float16(2), np.int64(2), ml_dtypes.bfloat16(2)])
def test_a_number_of_any_type_is_a_float(kind: Kind, given: Any) -> None:
    found = converted(kind, given)
    assert (found, type(found)) == (2.0, float)


@each("kind", [Kind.FLOAT, Kind.DOUBLE])
@each("given", [True, np.True_, "2", b"2", 1j, None, [2.0], 10**400])
def test_what_is_no_number_is_refused(kind: Kind, given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a number"):
        converted(kind, given)


@each("given", ["tanh", np.str_("tanh"), Approximate.TANH])
def test_a_text_of_any_type_is_a_str(given: Any) -> None:
    found = converted(Kind.STRING, given)
    assert (found, type(found)) == ("tanh", str)


@each("given", ["ta\0nh", b"tanh", 1, None, ["tanh"]])
def test_what_is_no_text_of_c_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a text without a zero byte"):
        converted(Kind.STRING, given)


@each(
    "given",
    [(1, 2), [1, 2], np.array([1, 2], np.int8), range(1, 3), [np.int64(1), Reduction(1) + 1]],
)
def test_a_sequence_of_integers_is_an_aclintarray(given: Any) -> None:
    found = converted(Kind.INT_ARRAY, given)
    assert (found, {*map(type, found)}) == ((1, 2), {int})


def test_an_aclintarray_may_be_empty() -> None:
    assert converted(Kind.INT_ARRAY, []) == ()


@each("given", [3, [1.0], [1, None], "12", [2**63], None, np.ones(2)])
def test_what_is_no_sequence_of_integers_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a sequence of integers of 64 bits"):
        converted(Kind.INT_ARRAY, given)


ENDS = {
    Kind.INT64: (-(2**63), 2**63 - 1),
    Kind.INT32: (-(2**31), 2**31 - 1),
    Kind.INT: (-(2**31), 2**31 - 1),
    Kind.INT8: (-128, 127),
    Kind.UINT64: (0, 2**63 - 1),
}
EXPECTED = {
    Kind.INT64: "an integer of 64 bits",
    Kind.INT32: "an integer of 32 bits",
    Kind.INT: "an integer of 32 bits",
    Kind.INT8: "an integer of 8 bits",
    Kind.UINT64: r"an integer of 0 or more and less than 2\^63",
}
integers = each("kind", ENDS)


@integers
def test_the_ends_of_an_integer_type_are_taken(kind: Kind) -> None:
    for end in ENDS[kind]:
        check_range("a", kind, end)
        assert converted(kind, end) == end


@integers
@each("side", [0, 1])
def test_a_number_beyond_the_ends_of_its_type_is_refused(kind: Kind, side: int) -> None:
    beyond = ENDS[kind][side] + (-1, 1)[side]
    for ask in (converted, lambda kind, number: check_range("a", kind, number)):
        with pytest.raises(AttributeValueError, match=f"a: expected {EXPECTED[kind]}") as caught:
            ask(kind, beyond)
        assert (caught.value.parameter, caught.value.aclnn_status) == ("a", None)


@integers
@each("given", [np.True_, 1.0, "1", None, [1]])
def test_what_is_no_integer_is_refused_for_every_integer_type(kind: Kind, given: Any) -> None:
    with pytest.raises(AttributeValueError, match=f"a: expected {EXPECTED[kind]}"):
        converted(kind, given)


@each("kind", [Kind.BOOL, Kind.DOUBLE, Kind.STRING, Kind.INT_ARRAY])
def test_a_kind_that_is_no_integer_has_no_range(kind: Kind) -> None:
    check_range("a", kind, 2**70)


@each(
    ("given", "dtype"),
    [
        (np.float16, FLOAT16),
        ("float32", FLOAT),
        (np.dtype(np.int8), INT8),
        (ml_dtypes.bfloat16, BF16),
        (bool, BOOL),
        (COMPLEX64, COMPLEX64),
    ],
)
def test_an_element_type_is_whatever_numpy_takes_for_one(given: Any, dtype: Any) -> None:
    assert converted(Kind.DTYPE, given) is dtype


@each("given", [None, 1, "FLOAT16", ">f4", "U4", np.void, [("x", "f4")]])
def test_what_is_no_element_type_that_travels_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected an element type"):
        converted(Kind.DTYPE, given)


@each("given", [[1, 0.5], (1, 0.5), np.array([1, 0.5]), [np.float16(1), 0.5]])
def test_a_sequence_of_numbers_is_an_aclfloatarray(given: Any) -> None:
    found = converted(Kind.FLOAT_ARRAY, given)
    assert (found, {*map(type, found)}) == ((1.0, 0.5), {float})


@each("given", [1.0, ["1"], [True], [1j], [1.0, None], "12", None])
def test_what_is_no_sequence_of_numbers_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a sequence of numbers"):
        converted(Kind.FLOAT_ARRAY, given)


@each("given", [[True, False], (True, np.False_), np.array([True, False])])
def test_a_sequence_of_truth_values_is_an_aclboolarray(given: Any) -> None:
    found = converted(Kind.BOOL_ARRAY, given)
    assert (found, {*map(type, found)}) == ((True, False), {bool})


@each("given", [True, [1], [True, 0.0], [None], "yes", None])
def test_what_is_no_sequence_of_truth_values_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a sequence of True and False"):
        converted(Kind.BOOL_ARRAY, given)


def test_each_number_of_an_aclscalarlist_has_a_dtype_of_its_own() -> None:
    found = converted(Kind.SCALAR_LIST, [1, 0.5, True, np.float16(2), Scalar(INT8, -1)])
    assert [(scalar.dtype, scalar.value) for scalar in found] == [
        (INT64, 1), (DOUBLE, 0.5), (BOOL, True), (FLOAT16, 2.0), (INT8, -1)
    ]  # fmt: skip


@each("given", [1, [1j], ["1"], [None], [2**63], [Scalar(INT8, 128)], None])
def test_what_is_no_sequence_of_numbers_with_dtypes_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a sequence of numbers"):
        converted(Kind.SCALAR_LIST, given)


@each("kind", [Kind.FLOAT_ARRAY, Kind.BOOL_ARRAY, Kind.SCALAR_LIST])
@each("given", [[], (), np.array([])])
def test_every_array_may_be_empty(kind: Kind, given: Any) -> None:
    assert converted(kind, given) == ()
