"""Numbers, texts and arrays of integers in a call of the client, and in its cache of calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npucall.declare.parameters import Scalar
from npucall.dtypes import DOUBLE, FLOAT, INT64
from npucall.errors import AttributeValueError
from npucall.operators import CATALOGUE
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.wire.calls import decode
from npucall_client import arguments

from .fake_transport import listed, parsed

ONES = np.ones(2, np.float32)


def call_with(slope: Any) -> bytes:
    """A call of a declared operator with this aclScalar."""
    args = (ONES, ONES, slope)
    return arguments.bind(leaky_relu_backward, "", args, {}, {}, keep_layout=False).call


def sent(slope: Any) -> Any:
    return decode(call_with(slope), CATALOGUE).arguments["negative_slope"]


def by_name(kind: str, value: Any) -> tuple[str | None, Any]:
    """Member and message of an attribute of this C type, of an operator of the server."""
    operator = listed("aclnnOnlyThere", n=kind)
    request = arguments.bind(operator, "", (), {"n": value}, {}, keep_layout=False)
    argument = parsed(request)["n"]
    return argument.WhichOneof("value"), argument


@pytest.mark.parametrize("order", [(0.0, -0.0, 0.0), (-0.0, 0.0, -0.0)])
def test_the_cache_does_not_take_minus_0_for_0_in_either_order(order: tuple[float, ...]) -> None:
    signs = [math.copysign(1, sent(value).value) for value in order]
    assert signs == [math.copysign(1, value) for value in order]
    numbers = [by_name("double", value)[1].number for value in order]
    assert [math.copysign(1, n) for n in numbers] == signs
    lists = [by_name("aclFloatArray*", [value])[1].numbers.values[0] for value in order]
    assert [math.copysign(1, n) for n in lists] == signs


def test_the_cache_does_not_take_one_dtype_for_another() -> None:
    slopes = [1, 1.0, True, np.float32(1), np.int8(1)] * 2
    assert [sent(slope).dtype.name for slope in slopes] == [
        "INT64", "DOUBLE", "BOOL", "FLOAT", "INT8"
    ] * 2  # fmt: skip


def test_nan_is_one_call_every_time() -> None:
    assert call_with(math.nan) == call_with(float("nan"))
    assert math.isnan(sent(math.nan).value)


def test_an_aclscalar_keeps_the_dtype_that_its_caller_chose() -> None:
    assert sent(Scalar(FLOAT, 0.5)) == Scalar(FLOAT, 0.5)
    assert sent(np.float64(0.5)) == Scalar(DOUBLE, 0.5)
    assert sent(2) == Scalar(INT64, 2)


@pytest.mark.parametrize("kind", ["float", "double", "const double"])
@pytest.mark.parametrize("given", [2, 2.0, np.float16(2), np.int64(2)])
def test_a_number_of_any_type_is_a_number_where_c_has_a_float(kind: str, given: Any) -> None:
    member, argument = by_name(kind, given)
    assert (member, argument.number) == ("number", 2.0)


@pytest.mark.parametrize("kind", ["char*", "const char*"])
def test_a_text_is_a_text_of_an_operator_that_only_the_server_knows(kind: str) -> None:
    member, argument = by_name(kind, "tanh")
    assert (member, argument.text) == ("text", "tanh")


@pytest.mark.parametrize("given", [[3, -1], (3, -1), np.array([3, -1]), []])
def test_a_list_is_integers_where_c_has_an_aclintarray(given: Any) -> None:
    member, argument = by_name("const aclIntArray*", given)
    assert (member, list(argument.integers.values)) == ("integers", list(given))


@pytest.mark.parametrize("given", [[3, -1], (3.0, -1.0), np.array([3, -1])])
def test_a_list_is_numbers_where_c_has_an_aclfloatarray(given: Any) -> None:
    member, argument = by_name("aclFloatArray*", given)
    assert (member, list(argument.numbers.values)) == ("numbers", [3.0, -1.0])


def test_a_list_is_truth_values_where_c_has_an_aclboolarray() -> None:
    member, argument = by_name("const aclBoolArray*", [True, False])
    assert (member, list(argument.booleans.values)) == ("booleans", [True, False])


def test_a_list_is_scalars_where_c_has_an_aclscalarlist() -> None:
    member, argument = by_name("const aclScalarList*", [np.float32(1), 2])
    assert (member, [s.dtype for s in argument.scalars.values]) == (
        "scalars",
        [FLOAT.wire, INT64.wire],
    )
    assert argument.scalars.values[0].value == b"\x00\x00\x80\x3f"  # 1.0, little-endian


@pytest.mark.parametrize("given", [np.float32, "float32", np.dtype(np.float32), FLOAT])
def test_a_dtype_is_one_where_c_has_an_acldatatype(given: Any) -> None:
    member, argument = by_name("aclDataType", given)
    assert (member, argument.dtype) == ("dtype", FLOAT.wire)


@pytest.mark.parametrize("given", [Scalar(FLOAT, 1.0), np.float32(1)])
def test_a_number_is_a_scalar_where_c_has_an_aclscalar(given: Any) -> None:
    member, argument = by_name("const aclScalar*", given)
    assert (member, argument.scalar.dtype) == ("scalar", FLOAT.wire)
    assert argument.scalar.value == b"\x00\x00\x80\x3f"  # 1.0, little-endian


@pytest.mark.parametrize("number", [np.float32(1), np.int64(1), np.bool_(True)])
def test_a_number_of_numpy_is_a_tensor_where_c_has_a_tensor(number: Any) -> None:
    member, argument = by_name("in const aclTensor*", number)
    assert (member, list(argument.tensor.shape)) == ("tensor", [])


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("const aclIntArray*", [1.5]),
        ("const aclFloatArray*", ["a"]),
        ("const aclBoolArray*", [1]),
        ("const aclScalarList*", [1j]),
        ("const aclScalar*", "1"),
        ("int64_t", 2**63),
        ("int32_t", 2**31),
        ("int", -(2**31) - 1),
        ("int8_t", 128),
        ("uint64_t", -1),
        ("bool", 1),
        ("char*", "a\0"),
        ("aclDataType", "FLOAT4"),
    ],
)
def test_what_a_kind_does_not_hold_is_refused_by_name(kind: str, given: Any) -> None:
    with pytest.raises(AttributeValueError, match="n: expected") as caught:
        by_name(kind, given)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("n", None)


def test_a_number_reaches_a_server_with_its_dtype(client: Any) -> None:
    x = np.array([-2, 2], np.float16)
    for slope in (0.25, np.float16(0.25), Scalar(FLOAT, 0.25)):
        np.testing.assert_array_equal(client.run(leaky_relu_backward, x, x, slope), [-0.5, 2])
        found = client.run("aclnnLeakyReluBackward", x, x, negative_slope=slope)
        np.testing.assert_array_equal(found, [-0.5, 2])
