"""npucall_client.calls.arguments: a Python call becomes a call of the contract, with its cache."""

import math
from typing import Any

import numpy as np
import pytest
from tests.client.conftest import EVERY_CLIENT
from tests.client.prototypes import bound as bound_to
from tests.client.prototypes import listed, members, parsed
from tests.rows import each

from npucall.declare.parameters import Scalar
from npucall.dtypes import DOUBLE, FLOAT, INT64
from npucall.errors import AttributeValueError
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.operators.leaky_relu_backward import leaky_relu_backward
from npucall.wire.calls import decode
from npucall_client.calls import answers, arguments

ONES = np.ones((2, 3), np.float32)
PAIR = np.ones(2, np.float32)
OF_THE_SERVER = listed("aclnnOnlyThere", a="in aclTensor*", n="int64_t", flag="bool", x="double")


def bound(operator: Any, *args: Any, **kwargs: Any) -> arguments.BoundCall:
    return bound_to(operator, {}, *args, **kwargs)


def decoded(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arguments of a call of kl_div_backward as the server reads them."""
    request = bound(kl_div_backward, *args, **kwargs)
    call = decode(request.call, CATALOGUE)
    assert tuple(request.storage) == call.stored
    return dict(call.arguments)


def of_kind(kind: str, value: Any) -> tuple[str | None, Any]:
    """Member and message of an attribute of this C type, of an operator of the server."""
    argument = parsed(bound(listed("aclnnOnlyThere", n=kind), n=value))["n"]
    return argument.WhichOneof("value"), argument


def test_positions_follow_the_order_of_the_c_function_and_names_their_own() -> None:
    values = decoded(ONES, ONES, ONES, 2, True)
    assert list(values) == ["grad_output", "self", "target", "reduction", "log_target"]
    assert (values["reduction"], values["log_target"]) == (2, True)
    given = {"target": ONES, "self": ONES, "grad_output": ONES}
    assert list(decoded(**given)) == ["target", "self", "grad_output"]


def test_a_default_is_left_to_the_server_and_none_is_sent_as_absent() -> None:
    request = bound(kl_div_backward, None, ONES, ONES)
    assert members(request) == {"grad_output": "absent", "self": "tensor", "target": "tensor"}
    assert "grad_output" not in request.storage


@each(
    ("args", "kwargs", "message"),
    [
        ((ONES,), {"self": ONES, "targt": ONES}, "target"),
        ((ONES, ONES, ONES), {"targt": ONES}, "unexpected keyword argument 'targt'"),
        ((ONES, ONES, ONES), {"out": ONES}, "unexpected keyword argument 'out'"),
        ((ONES, ONES, ONES), {"target": ONES}, "multiple values for argument 'target'"),
        ((ONES, ONES), {}, "missing a required argument: 'target'"),
        ((ONES, ONES, ONES, 1, True, 5), {}, "too many positional arguments"),
        ((ONES, ONES, "1.5"), {}, "target: expected an array, found str"),
    ],
)
def test_what_a_python_call_would_refuse_is_a_type_error(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        bound(kl_div_backward, *args, **kwargs)


@each(
    ("args", "kwargs", "message"),
    [
        ((ONES,), {}, "aclnnOnlyThere: expected arguments by name, found 1 by"),
        ((), {"n": 1, "flag": True}, "aclnnOnlyThere: missing a required argument: x"),
        ((), {"n": 1}, "missing a required argument: flag, x"),
        ((), {"n": 1, "flag": True, "x": 1.0, "m": 2}, "got an unexpected keyword argument 'm'; i"),
        ((), {"n": 1, "flag": True, "x": 1.0, "a": 1.5}, "a: expected an array, found float"),
        ((), {"n": 1, "flag": True, "x": 1.0, "a": [[1.0]]}, "a: expected an array, found list"),
    ],
)
def test_what_fits_no_listing_is_a_type_error(
    args: Any, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        bound(OF_THE_SERVER, *args, **kwargs)


# Numbers, texts and arrays of integers.


@each("value", [np.int8(2), np.uint64(2), np.array(2), -(2**63), 2**63 - 1])
@each("flag", [np.True_, np.False_, True, False])
def test_integers_of_64_bits_and_truth_values_travel(value: Any, flag: Any) -> None:
    found = decoded(ONES, ONES, ONES, value, log_target=flag)
    assert (found["reduction"], found["log_target"]) == (int(value), bool(flag))
    assert isinstance(found["log_target"], bool)


ONE_LE = b"\x00\x00\x80\x3f"  # 1.0, little-endian


@each(
    ("kind", "given", "member", "expected"),
    [
        *(
            (kind, given, "number", 2.0)
            for kind in ("float", "double", "const double")
            for given in (2, 2.0, np.float16(2), np.int64(2))
        ),
        ("int64_t", True, "integer", 1),
        ("bool", True, "boolean", True),
        ("char*", "tanh", "text", "tanh"),
        ("const char*", "tanh", "text", "tanh"),
        *(
            ("const aclIntArray*", given, "integers", [3, -1])
            for given in ([3, -1], (3, -1), np.array([3, -1]))
        ),
        ("const aclIntArray*", [], "integers", []),
        ("const aclIntArray*", [1, 0], "integers", [1, 0]),
        ("const aclBoolArray*", [True, False], "booleans", [True, False]),
        *(
            ("aclFloatArray*", given, "numbers", [3.0, -1.0])
            for given in ([3, -1], (3.0, -1.0), np.array([3, -1]))
        ),
        *(
            ("aclDataType", given, "dtype", FLOAT.wire)
            for given in (np.float32, "float32", np.dtype(np.float32), FLOAT)
        ),
    ],
)
def test_a_value_is_what_its_c_type_says(kind: str, given: Any, member: str, expected: Any) -> None:
    found, argument = of_kind(kind, given)
    value = getattr(argument, member)
    assert (found, list(value.values) if hasattr(value, "values") else value) == (member, expected)


def test_a_number_is_a_scalar_or_a_tensor_where_c_has_one() -> None:
    for given in Scalar(FLOAT, 1.0), np.float32(1):
        member, argument = of_kind("const aclScalar*", given)
        assert (member, argument.scalar.dtype) == ("scalar", FLOAT.wire)
        assert argument.scalar.value == ONE_LE
    member, argument = of_kind("const aclScalarList*", [np.float32(1), 2])
    scalars = [scalar.dtype for scalar in argument.scalars.values]
    assert (member, scalars) == ("scalars", [FLOAT.wire, INT64.wire])
    assert argument.scalars.values[0].value == ONE_LE
    for number in np.float32(1), np.int64(1), np.bool_(True):
        member, argument = of_kind("in const aclTensor*", number)
        assert (member, list(argument.tensor.shape)) == ("tensor", [])


@each(
    ("kind", "given"),
    [
        ("const aclIntArray*", [1.5]),
        ("const aclFloatArray*", ["a"]),
        ("const aclBoolArray*", [1]),
        ("const aclScalarList*", [1j]),
        ("const aclScalar*", "1"),
        *(("int64_t", value) for value in (2**63, -(2**63) - 1, 1.0, "avg", ONES)),
        ("int32_t", 2**31),
        ("int", -(2**31) - 1),
        ("int8_t", 128),
        ("uint64_t", 2**64),
        *(("bool", value) for value in (0, 1, "yes", 1.0)),
        ("char*", "a\0"),
        ("aclDataType", "FLOAT4"),
    ],
)
def test_what_a_kind_does_not_hold_is_refused_by_name(kind: str, given: Any) -> None:
    with pytest.raises(AttributeValueError, match="n: expected") as caught:
        of_kind(kind, given)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("n", None)


def slope_sent(slope: Any) -> Any:
    """The aclScalar of a declared operator."""
    request = bound(leaky_relu_backward, PAIR, PAIR, slope)
    return decode(request.call, CATALOGUE).arguments["negative_slope"]


@each("kinds", [("int64_t", "bool"), ("bool", "int64_t")])
def test_the_cache_does_not_take_true_for_1_in_either_order(kinds: tuple[str, str]) -> None:
    expected = {"int64_t": "integer", "bool": "boolean"}
    lists = {"int64_t": ("aclIntArray*", [1, 0]), "bool": ("aclBoolArray*", [True, False])}
    for kind in (*kinds, kinds[0]):
        assert of_kind(kind, True)[0] == expected[kind]
        assert of_kind(*lists[kind])[0] == f"{expected[kind]}s"


@each("order", [(0.0, -0.0, 0.0), (-0.0, 0.0, -0.0)])
def test_the_cache_does_not_take_minus_0_for_0_in_either_order(order: tuple[float, ...]) -> None:
    signs = [math.copysign(1, value) for value in order]
    for found in (
        [slope_sent(value).value for value in order],
        [of_kind("double", value)[1].number for value in order],
        [of_kind("aclFloatArray*", [value])[1].numbers.values[0] for value in order],
    ):
        assert [math.copysign(1, number) for number in found] == signs


def test_the_cache_does_not_take_one_dtype_for_another() -> None:
    slopes = [1, 1.0, True, np.float32(1), np.int8(1)] * 2
    assert [slope_sent(slope).dtype.name for slope in slopes] == [
        "INT64", "DOUBLE", "BOOL", "FLOAT", "INT8"
    ] * 2  # fmt: skip
    assert slope_sent(Scalar(FLOAT, 0.5)) == Scalar(FLOAT, 0.5)
    assert slope_sent(np.float64(0.5)) == Scalar(DOUBLE, 0.5)
    assert slope_sent(2) == Scalar(INT64, 2)


def test_nan_is_one_call_every_time() -> None:
    first = bound(leaky_relu_backward, PAIR, PAIR, math.nan)
    assert bound(leaky_relu_backward, PAIR, PAIR, float("nan")).call == first.call
    assert math.isnan(slope_sent(math.nan).value)


@EVERY_CLIENT
def test_a_number_reaches_a_server_with_its_dtype(client: Any) -> None:
    x = np.array([-2, 2], np.float16)
    for slope in (0.25, np.float16(0.25), Scalar(FLOAT, 0.25)):
        np.testing.assert_array_equal(client.run(leaky_relu_backward, x, x, slope), [-0.5, 2])
        found = client.run("aclnnLeakyReluBackward", x, x, negative_slope=slope)
        np.testing.assert_array_equal(found, [-0.5, 2])


def test_several_outputs_are_a_named_tuple_whatever_their_names() -> None:
    value = answers.value_of("aclnnTwo", {"out": ONES, "from": ONES * 2})
    assert value.out is ONES
    np.testing.assert_array_equal(value[1], ONES * 2)
    assert answers.value_of("aclnnTwo", {"a": ONES, "b": ONES})._fields == ("a", "b")
