"""npucall.operators.attributes: what Python callers give, and the value that the C type holds."""

from __future__ import annotations

import math
from enum import IntEnum, StrEnum
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8
from npucall.errors import AttributeValueError
from npucall.operators.attributes import attribute_value
from npucall.operators.spec import Attribute, Kind, Scalar


class Reduction(IntEnum):
    MEAN = 1


class Approximate(StrEnum):
    TANH = "tanh"


def converted(kind: Kind, given: Any) -> Any:
    return attribute_value("a", Attribute("a", kind, "any"), given)


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("given", [1, np.int8(1), np.array(1), Reduction.MEAN, np.uint64(1), True])
def test_an_integer_of_any_type_is_an_int(given: Any) -> None:
    found = converted(Kind.INT64, given)
    assert (found, type(found)) == (1, int)


@pytest.mark.parametrize("given", [np.True_, 1.0, "1", 2**63, None, np.float32(1)])
def test_what_is_no_integer_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected an integer of 64 bits"):
        converted(Kind.INT64, given)


@pytest.mark.parametrize("kind", [Kind.FLOAT, Kind.DOUBLE])
@pytest.mark.parametrize("given", [2, 2.0, np.float16(2), np.int64(2), ml_dtypes.bfloat16(2)])
def test_a_number_of_any_type_is_a_float(kind: Kind, given: Any) -> None:
    found = converted(kind, given)
    assert (found, type(found)) == (2.0, float)


@pytest.mark.parametrize("kind", [Kind.FLOAT, Kind.DOUBLE])
@pytest.mark.parametrize("given", [True, np.True_, "2", b"2", 1j, None, [2.0], 10**400])
def test_what_is_no_number_is_refused(kind: Kind, given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a number"):
        converted(kind, given)


@pytest.mark.parametrize("given", ["tanh", np.str_("tanh"), Approximate.TANH])
def test_a_text_of_any_type_is_a_str(given: Any) -> None:
    found = converted(Kind.STRING, given)
    assert (found, type(found)) == ("tanh", str)


@pytest.mark.parametrize("given", ["ta\0nh", b"tanh", 1, None, ["tanh"]])
def test_what_is_no_text_of_c_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a text without a zero byte"):
        converted(Kind.STRING, given)


@pytest.mark.parametrize(
    "given",
    [(1, 2), [1, 2], np.array([1, 2], np.int8), range(1, 3), [np.int64(1), Reduction(1) + 1]],
)
def test_a_sequence_of_integers_is_an_aclintarray(given: Any) -> None:
    found = converted(Kind.INT_ARRAY, given)
    assert (found, {*map(type, found)}) == ((1, 2), {int})


def test_an_aclintarray_may_be_empty() -> None:
    assert converted(Kind.INT_ARRAY, []) == ()


@pytest.mark.parametrize("given", [3, [1.0], [1, None], "12", [2**63], None, np.ones(2)])
def test_what_is_no_sequence_of_integers_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected a sequence of integers of 64 bits"):
        converted(Kind.INT_ARRAY, given)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (3, 3),
        (True, True),
        (0.5, 0.5),
        (2.0, 2.0),
        ("none", "none"),
        ([1, 2], (1, 2)),
        ((), ()),
        (Scalar(FLOAT, 1.0), Scalar(FLOAT, 1.0)),
    ],
)
def test_of_an_unknown_attribute_the_python_type_decides(given: Any, value: Any) -> None:
    found = attribute_value("a", None, given)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("given", [[1.5], ["x"], 2**63, "a\0b", 1j, None, [math.nan]])
def test_what_an_unknown_attribute_cannot_be_is_refused(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="a: expected"):
        attribute_value("a", None, given)
