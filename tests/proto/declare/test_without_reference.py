"""Calls of operators known by their C prototype alone: what is checked, and stated roles."""

from typing import Any

import numpy as np
import pytest
from tests.proto.prototypes import (
    ADD_IN_PLACE,
    CAT,
    CATALOGUE,
    PAIR,
    SPLIT,
    STRIDED,
    TRIPLE,
    decoded,
    prepared,
    raw,
)
from tests.rows import each

from npucall.declare.parameters import Input, Output, Scalar
from npucall.declare.prepare import once_a_call
from npucall.dtypes import FLOAT
from npucall.errors import (
    ArgumentMissingError,
    ArgumentUnknownError,
    AttributeValueError,
    MessageError,
    TensorLayoutError,
)
from npucall.operators import CATALOGUE as DECLARED
from npucall.products import A2, ASCEND_310B
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.calls import PreparedCalls, decode, encode
from npucall.wire.replies import ServerIdentity, decode_reply, encode_reply

SERVER = ServerIdentity("a1b2", "cann:0", "Ascend910B1")
ONE = Scalar(FLOAT, 1.0)
TENSOR = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[2])
BOTH = ("selfRef", "other")


def cat(*stored: str, **given: Any) -> Any:
    return prepared(CAT, *stored, **{"dim": 0, **given})


def add(*stored: str, roles: Any = None, **given: Any) -> Any:
    everything = {"selfRef": PAIR, "other": PAIR, "alpha": ONE, **given}
    return prepared(ADD_IN_PLACE, *stored, roles=roles, **everything)


def test_a_call_without_rules_is_prepared_for_any_product() -> None:
    data = encode("aclnnCat", "", {"tensors": (PAIR,), "dim": -1, "out": TRIPLE}, ("tensors",))
    for product in (A2, ASCEND_310B):
        call = PreparedCalls(CATALOGUE, product, "").of(data)
        assert call.outputs == {"out": TRIPLE}
        assert (call.kernel_dtype, call.done, call.warnings) == (None, False, ())
        assert call.facts.dtype == np.float32


def test_a_call_is_kept_unless_it_would_take_much_memory() -> None:
    calls = PreparedCalls(CATALOGUE, A2, "")
    few, many = (
        encode("aclnnCat", "", {"tensors": (PAIR,) * n, "dim": 0, "out": TRIPLE}, ("tensors",))
        for n in (255, 256)  # and the output
    )
    assert max(len(few), len(many)) < 8192
    assert calls.of(few) is calls.of(few)
    assert calls.of(many) is not calls.of(many)
    assert len(calls.of(many).inputs) == 256


def test_what_follows_from_a_call_is_found_once_and_goes_with_the_call() -> None:
    asked = []
    warnings_of = once_a_call(lambda call: asked.append(call) or call.warnings)  # type: ignore[func-returns-value]
    first, second = add(*BOTH), add(*BOTH)
    for call in first, first, second:
        assert warnings_of(call) == call.warnings
    assert asked == [first, second]


@each("operator", [CAT, SPLIT])
def test_an_output_that_is_not_mentioned_is_missing(operator: Any) -> None:
    with pytest.raises(ArgumentMissingError, match="out: expected the output's shape") as caught:
        prepared(operator, dim=0)
    assert (caught.value.parameter, caught.value.aclnn_status) == ("out", None)
    assert caught.value.details["operator"] == operator.name


def test_an_attribute_without_value_is_found_before_an_output_that_is_missing() -> None:
    with pytest.raises(AttributeValueError, match="dim: expected a value"):
        prepared(CAT)


def test_an_output_may_be_a_null_pointer_and_is_not_in_the_reply_then() -> None:
    call = cat("tensors", tensors=(PAIR,), out=None)
    assert call.outputs == {}
    assert decode_reply(encode_reply(call, SERVER)).outputs == {}


def test_a_reply_has_a_dense_output_and_no_kernel_dtype() -> None:
    call = cat("tensors", tensors=(PAIR,), out=STRIDED)
    assert call.outputs == {"out": PAIR}
    assert pb.Reply.FromString(encode_reply(call, SERVER)).kernel_dtype == 0
    reply = decode_reply(encode_reply(call, SERVER))
    assert (reply.variant, reply.kernel_dtype, reply.warnings) == ("", None, ())
    assert (reply.outputs, reply.stored) == ({"out": PAIR}, ("out",))


# Read and written in place.


def test_an_output_in_place_has_to_be_sent() -> None:
    with pytest.raises(TensorLayoutError, match="selfRef: expected its values") as caught:
        add("other")
    assert (caught.value.parameter, caught.value.aclnn_status) == ("selfRef", None)


def test_an_output_in_place_whose_elements_share_memory_is_refused() -> None:
    shared = TensorSpec(FLOAT, (2,), (0,))
    with pytest.raises(TensorLayoutError, match="selfRef: expected an output whose elements do"):
        add(*BOTH, selfRef=shared)


# Stated roles: what is sent, the roles, what is given, and inputs, outputs and storages.
WIDE = TensorSpec(FLOAT, (7, 9))
ROLES: list[tuple[Any, ...]] = [
    (BOTH, {}, {"selfRef": STRIDED}, {"other": PAIR}, {"selfRef": STRIDED}),
    (BOTH, {}, {"other": WIDE}, {"other": WIDE}, {"selfRef": PAIR}),  # only the device says no
    (("selfRef",), {}, {"other": None}, {}, {"selfRef": PAIR}),
    (("other",), {"selfRef": Output}, {}, {"other": PAIR}, {"selfRef": PAIR}),
    (
        ("selfRef",),
        {"selfRef": Input, "other": Output},
        {"other": TRIPLE},
        {"selfRef": PAIR},
        {"other": TRIPLE},
    ),
    (BOTH, {"other": Output}, {"other": STRIDED}, {}, {"selfRef": PAIR, "other": STRIDED}),
    (BOTH, {"other": Input}, {}, {"other": PAIR}, {"selfRef": PAIR}),  # that of the listing
    (("selfRef",), {"other": Output}, {"other": None}, {}, {"selfRef": PAIR}),
]


@each(("stored", "roles", "given", "inputs", "outputs"), ROLES)
def test_a_stated_role_decides_whatever_the_listing_guessed(
    stored: Any, roles: Any, given: Any, inputs: Any, outputs: Any
) -> None:
    """For its call alone; what is stated as output and sent is read and written."""
    call = add(*stored, roles=roles, **given)
    assert (call.inputs, call.outputs, call.stored) == (inputs, outputs, stored)
    assert {name: type(call.operator.by_name[name]) for name in roles} == roles
    assert [type(p) for p in ADD_IN_PLACE.parameters[:2]] == [Output, Input]
    assert add(*BOTH).outputs == {"selfRef": PAIR}


def test_a_stated_input_has_to_be_sent() -> None:
    with pytest.raises(TensorLayoutError, match="out: expected its values, which the operator"):
        cat(roles={"out": Input}, tensors=None, out=PAIR)


def test_roles_make_calls_differ() -> None:
    given = {"selfRef": PAIR, "other": PAIR, "alpha": None}
    calls = {encode("aclnnInplaceVendorAdd", "", given, (), r) for r in ({}, {"other": Output})}
    assert len(calls) == 2


ABSENT = {"absent": pb.Absent()}
REFUSED: list[tuple[Any, str, dict[str, Any], int]] = [
    *((CAT, "out", {"tensor": TENSOR}, role) for role in (pb.ROLE_ATTRIBUTE, 99, -1)),
    (CAT, "out", {"tensor": TENSOR}, pb.ROLE_INPUT_OUTPUT),
    *((CAT, "dim", {"integer": 1}, role) for role in (pb.ROLE_INPUT, pb.ROLE_OUTPUT)),
    (CAT, "dim", {"integer": 1}, pb.ROLE_ATTRIBUTE),
    *(
        (DECLARED.find("aclnnKlDivBackward"), name, ABSENT, role)
        for name in ("target", "out", "reduction")
        for role in (pb.ROLE_INPUT, pb.ROLE_OUTPUT)
    ),
]


@each(("operator", "name", "value", "role"), REFUSED)
def test_a_role_that_no_call_can_state_is_refused(
    operator: Any, name: str, value: dict[str, Any], role: Any
) -> None:
    call = pb.Call(operator=operator.name, arguments=[pb.Argument(name=name, role=role, **value)])
    catalogue = CATALOGUE if operator is CAT else DECLARED
    with pytest.raises(MessageError, match=f"{name}: expected no role") as caught:
        decode(call.SerializeToString(), catalogue)
    assert (caught.value.parameter, caught.value.aclnn_status) == (name, None)


def test_a_role_of_no_parameter_is_refused_as_that() -> None:
    with pytest.raises(ArgumentUnknownError, match="'x': expected a parameter of aclnnCat: tens"):
        raw(CAT, pb.Argument(name="x", absent=pb.Absent(), role=pb.ROLE_INPUT))


def test_an_argument_that_is_given_twice_is_refused_with_roles_too() -> None:
    argument = pb.Argument(name="out", tensor=TENSOR, role=pb.ROLE_INPUT)
    with pytest.raises(MessageError, match="out: expected one argument of this name, found two"):
        raw(CAT, argument, argument)


def test_a_call_without_roles_is_decoded_for_the_very_operator_of_the_catalogue() -> None:
    assert decoded(CAT, out=PAIR).operator is CAT
