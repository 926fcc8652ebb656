"""Numbers, texts and arrays of integers in a call of the client, and in its cache of calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from npucall.calls import decode
from npucall.dtypes import DOUBLE, FLOAT, INT64
from npucall.errors import AttributeValueError
from npucall.operators import CATALOGUE
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.operators.spec import Scalar
from npucall.v1 import operator_service_pb2 as pb
from npucall_client import arguments

ONES = np.ones(2, np.float32)


def call_with(slope: Any) -> bytes:
    """A call of a declared operator with this aclScalar."""
    args = (ONES, ONES, slope)
    return arguments.bind(leaky_relu_backward, "", args, {}, {}, keep_layout=False).call


def sent(slope: Any) -> Any:
    return decode(call_with(slope), CATALOGUE).arguments["negative_slope"]


def by_name(**values: Any) -> dict[str, Any]:
    """What a call of an operator that only the server knows says: members and messages."""
    request = arguments.bind("aclnnOnlyThere", "", (), values, {}, keep_layout=False)
    listed = pb.Call.FromString(request.call).arguments
    return {a.name: (a.WhichOneof("value"), a) for a in listed}


@pytest.mark.parametrize("order", [(0.0, -0.0, 0.0), (-0.0, 0.0, -0.0)])
def test_the_cache_does_not_take_minus_0_for_0_in_either_order(order: tuple[float, ...]) -> None:
    signs = [math.copysign(1, sent(value).value) for value in order]
    assert signs == [math.copysign(1, value) for value in order]
    numbers = [by_name(n=value)["n"][1].number for value in order]
    assert [math.copysign(1, n) for n in numbers] == signs


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


def test_a_float_is_a_number_of_an_operator_that_only_the_server_knows() -> None:
    member, argument = by_name(beta=0.1)["beta"]
    assert (member, argument.number) == ("number", 0.1)


def test_a_text_is_a_text_of_an_operator_that_only_the_server_knows() -> None:
    member, argument = by_name(approximate="tanh")["approximate"]
    assert (member, argument.text) == ("text", "tanh")


@pytest.mark.parametrize("given", [[3, -1], (3, -1), []])
def test_a_list_is_integers_of_an_operator_that_only_the_server_knows(given: Any) -> None:
    member, argument = by_name(lengths=given)["lengths"]
    assert (member, list(argument.integers.values)) == ("integers", list(given))


def test_a_scalar_is_one_of_an_operator_that_only_the_server_knows() -> None:
    member, argument = by_name(alpha=Scalar(FLOAT, 1.0))["alpha"]
    assert (member, argument.scalar.dtype) == ("scalar", FLOAT.wire)
    assert argument.scalar.value == b"\x00\x00\x80\x3f"  # 1.0, little-endian


@pytest.mark.parametrize("number", [np.float32(1), np.int64(1), np.bool_(True)])
def test_a_number_of_numpy_is_a_tensor_of_an_operator_that_only_the_server_knows(
    number: Any,
) -> None:
    member, argument = by_name(x=number)["x"]
    assert (member, list(argument.tensor.shape)) == ("tensor", [])


@pytest.mark.parametrize("given", [[1.5], ["a"], 2**63, "a\0"])
def test_what_no_kind_holds_is_refused_by_name(given: Any) -> None:
    with pytest.raises(AttributeValueError, match="n: expected"):
        by_name(n=given)


def test_a_number_reaches_a_server_with_its_dtype(client: Any) -> None:
    x = np.array([-2, 2], np.float16)
    for slope in (0.25, np.float16(0.25), Scalar(FLOAT, 0.25)):
        np.testing.assert_array_equal(client.run(leaky_relu_backward, x, x, slope), [-0.5, 2])
        found = client.run("aclnnLeakyReluBackward", x, x, negative_slope=slope)
        np.testing.assert_array_equal(found, [-0.5, 2])
