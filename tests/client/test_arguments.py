"""npucall_client.arguments: a Python call becomes a call of the contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npucall.errors import AttributeValueError, InternalError
from npucall.operators import CATALOGUE
from npucall.operators.kl_div_backward import kl_div_backward
from npucall.wire.calls import decode
from npucall.wire.replies import Reply, ServerIdentity
from npucall_client import answers, arguments

from .fake_transport import listed, members, parsed

ONES = np.ones((2, 3), np.float32)
ANY_NUMBER = listed("aclnnAnyNumber", a="in aclTensor*", n="int64_t", flag="bool", x="double")


def bound(operator: Any, *args: Any, **kwargs: Any) -> arguments.BoundCall:
    return arguments.bind(operator, "", args, kwargs, {}, keep_layout=False)


def test_positions_follow_the_order_of_the_c_function() -> None:
    request = bound(kl_div_backward, ONES, ONES, ONES, 2, True)
    values = decode(request.call, CATALOGUE).arguments
    assert list(values) == ["grad_output", "self", "target", "reduction", "log_target"]
    assert (values["reduction"], values["log_target"]) == (2, True)


def test_self_is_a_keyword_like_any_other() -> None:
    request = bound(kl_div_backward, target=ONES, self=ONES, grad_output=ONES)
    assert list(decode(request.call, CATALOGUE).arguments) == ["target", "self", "grad_output"]


def test_storage_travels_in_the_order_of_the_call() -> None:
    request = bound(kl_div_backward, target=ONES, self=ONES, grad_output=ONES)
    assert tuple(request.storage) == decode(request.call, CATALOGUE).stored


def test_a_default_is_left_to_the_server() -> None:
    assert "reduction" not in parsed(bound(kl_div_backward, ONES, ONES, ONES))


def test_none_is_sent_as_absent() -> None:
    request = bound(kl_div_backward, None, ONES, ONES)
    assert members(request)["grad_output"] == "absent"
    assert "grad_output" not in request.storage


@pytest.mark.parametrize("kind", ["int64_t", "bool"])
def test_a_kind_decides_which_of_1_and_true_an_attribute_is(kind: str) -> None:
    operator = listed("aclnnOnlyThere", flag=kind)
    member, found = {"int64_t": ("integer", 1), "bool": ("boolean", True)}[kind]
    request = bound(operator, flag=True)
    assert members(request) == {"flag": member}
    assert getattr(parsed(request)["flag"], member) is found


@pytest.mark.parametrize("order", [("int64_t", "bool"), ("bool", "int64_t")])
def test_the_cache_does_not_take_true_for_1_in_either_order(order: tuple[str, str]) -> None:
    expected = {"int64_t": "integer", "bool": "boolean"}
    for kind in (*order, order[0]):
        request = bound(listed("aclnnOnlyThere", flag=kind), flag=True)
        assert members(request)["flag"] == expected[kind]


@pytest.mark.parametrize("order", [([1, 0], [True, False]), ([True, False], [1, 0])])
def test_the_cache_does_not_take_truth_values_for_integers_in_a_list(order: Any) -> None:
    kinds = {int: ("const aclIntArray*", "integers"), bool: ("const aclBoolArray*", "booleans")}
    for value in (*order, order[0]):
        kind, member = kinds[type(value[0])]
        assert members(bound(listed("aclnnOnlyThere", x=kind), x=value)) == {"x": member}


@pytest.mark.parametrize("value", [np.int8(2), np.uint64(2), np.array(2)])
def test_an_integer_of_numpy_is_an_integer(value: Any) -> None:
    values = decode(bound(kl_div_backward, ONES, ONES, ONES, value).call, CATALOGUE).arguments
    assert values["reduction"] == 2


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1])
def test_every_number_of_64_bits_travels(value: int) -> None:
    values = decode(bound(kl_div_backward, ONES, ONES, ONES, value).call, CATALOGUE).arguments
    assert values["reduction"] == value


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 1.0, "avg", ONES])
def test_what_is_no_integer_of_64_bits_is_refused(value: Any) -> None:
    with pytest.raises(AttributeValueError, match="reduction: expected an integer of 64 bits"):
        bound(kl_div_backward, ONES, ONES, ONES, value)


def test_a_number_beyond_64_bits_is_refused_for_an_operator_of_the_server_too() -> None:
    with pytest.raises(AttributeValueError, match="n: expected an integer of 64 bits"):
        bound(ANY_NUMBER, n=2**63, flag=True, x=0.0)


@pytest.mark.parametrize("value", [np.True_, np.False_, True, False])
def test_a_truth_value_of_numpy_is_one(value: Any) -> None:
    request = bound(kl_div_backward, ONES, ONES, ONES, log_target=value)
    assert decode(request.call, CATALOGUE).arguments["log_target"] is bool(value)


@pytest.mark.parametrize("value", [0, 1, "yes", 1.0])
def test_what_is_no_truth_value_is_refused(value: Any) -> None:
    with pytest.raises(AttributeValueError, match="log_target: expected True or False"):
        bound(kl_div_backward, ONES, ONES, ONES, log_target=value)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((ONES,), {"self": ONES, "targt": ONES}, "target"),
        ((ONES, ONES, ONES), {"targt": ONES}, "unexpected keyword argument 'targt'"),
        ((ONES, ONES, ONES), {"out": ONES}, "unexpected keyword argument 'out'"),
        ((ONES, ONES, ONES), {"target": ONES}, "multiple values for argument 'target'"),
        ((ONES, ONES), {}, "missing a required argument: 'target'"),
        ((ONES, ONES, ONES, 1, True, 5), {}, "too many positional arguments"),
        ((ONES, ONES, 1.5), {}, "target: expected an array, found float"),
        ((ONES, ONES, [[1.0]]), {}, "target: expected an array, found list"),
    ],
)
def test_what_a_python_call_would_refuse_is_a_type_error(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        bound(kl_div_backward, *args, **kwargs)


def test_an_operator_that_only_the_server_knows_takes_arguments_by_name_alone() -> None:
    with pytest.raises(TypeError, match="aclnnAnyNumber: expected arguments by name, found 1 by"):
        bound(ANY_NUMBER, ONES)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n": 1, "flag": True}, "aclnnAnyNumber: missing a required argument: x"),
        ({"n": 1}, "missing a required argument: flag, x"),
        ({"n": 1, "flag": True, "x": 1.0, "m": 2}, "got an unexpected keyword argument 'm'; it"),
        ({"n": 1, "flag": True, "x": 1.0, "a": 1.5}, "a: expected an array, found float"),
        ({"n": 1, "flag": True, "x": 1.0, "a": [[1.0]]}, "a: expected an array, found list"),
    ],
)
def test_what_does_not_fit_the_listing_is_a_type_error(
    kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        bound(ANY_NUMBER, **kwargs)


def test_the_listing_says_what_the_arguments_of_an_operator_of_the_server_are() -> None:
    request = bound(ANY_NUMBER, a=ONES, n=3, flag=True, x=2)
    expected = {"a": "tensor", "n": "integer", "flag": "boolean", "x": "number"}
    assert members(request) == expected
    assert members(bound(ANY_NUMBER, a=None, n=3, flag=True, x=2)) == {**expected, "a": "absent"}


def test_calls_of_one_form_have_the_same_bytes_whatever_their_numbers_are() -> None:
    first = bound(kl_div_backward, ONES, ONES, ONES, 1)
    assert bound(kl_div_backward, ONES * 2, ONES, ONES, 1).call == first.call
    assert bound(kl_div_backward, ONES, ONES, ONES, 2).call != first.call
    assert bound(kl_div_backward, ONES, ONES, ONES.astype(np.float16), 1).call != first.call


def test_a_response_with_too_few_bytes_is_a_bug_of_the_server() -> None:
    spec = decode(bound(kl_div_backward, ONES, ONES, ONES).call, CATALOGUE).arguments["target"]
    server = ServerIdentity("a", "cpu", "Ascend910B1")
    reply = Reply("", None, {"out": spec}, ("out",), (), server)  # type: ignore[dict-item]
    with pytest.raises(InternalError, match=r"storages of \[24\] bytes, found \[20\]"):
        answers.unpack(arguments.BoundCall("x"), reply, [bytes(20)])


def test_several_outputs_are_a_named_tuple() -> None:
    value = answers.value_of("aclnnTwo", {"out": ONES, "mask": ONES * 2})
    assert value._fields == ("out", "mask")
    np.testing.assert_array_equal(value.mask, ONES * 2)
