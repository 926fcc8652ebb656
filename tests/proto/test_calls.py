"""npucall.wire.calls: a call and its bytes, and what is wrong with a call."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import each

from npucall.dtypes import DTYPES, FLOAT
from npucall.errors import (
    ArgumentUnknownError,
    DTypeError,
    MessageError,
    NpucallError,
    OperatorUnknownError,
    TensorLayoutError,
)
from npucall.operators import CATALOGUE
from npucall.tensors import Format, TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.calls import decode, decode_tensor, encode, encode_tensor

NAME = "aclnnKlDivBackward"
SPEC = TensorSpec(FLOAT, (2, 3))
TENSOR = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[2, 3])


def tensor(name: str = "target", **fields: Any) -> pb.Argument:
    return pb.Argument(name=name, tensor=tensor_pb2.TensorSpec(**{"dtype": 1, **fields}))


@st.composite
def specs(draw: st.DrawFn) -> TensorSpec:
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    dense = st.just(None)
    strides = draw(dense | st.tuples(*[st.integers(0, 50)] * len(shape)))
    offset = draw(st.integers(0, 3))
    reach = TensorSpec(FLOAT, shape, strides, offset).storage_elements  # type: ignore[arg-type]
    longer = st.integers(reach, reach + 3).map(lambda extent: (extent,))
    blocks = st.just((1, reach, 1))
    storage = draw(dense | longer | blocks)
    dtype, layout = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(Format))
    return TensorSpec(dtype, shape, strides, offset, storage, layout)  # type: ignore[arg-type]


@given(specs())
def test_a_spec_comes_back_from_its_message_as_it_was(spec: TensorSpec) -> None:
    assert decode_tensor("x", encode_tensor(spec)) == spec


@given(specs())
def test_a_message_says_of_a_dense_tensor_only_what_it_has_to(spec: TensorSpec) -> None:
    message = encode_tensor(spec.dense())
    assert not message.strides
    assert not message.storage_shape


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "grad_output": st.none() | specs(),
            "self": st.none() | specs(),
            "out": st.none() | specs(),
            "reduction": st.none() | st.integers(-(2**63), 2**63 - 1),
            "log_target": st.none() | st.booleans(),
        },
    )
)
def test_a_call_comes_back_from_its_bytes_as_it_was(arguments: dict[str, Any]) -> None:
    stored = tuple(name for name, value in arguments.items() if isinstance(value, TensorSpec))
    call = decode(encode(NAME, "", arguments, stored), CATALOGUE)
    assert call.operator.name == NAME
    assert dict(call.arguments) == arguments
    assert call.stored == stored


def test_true_and_1_are_different_values_in_a_call() -> None:
    arguments = {"log_target": True, "reduction": 1}
    values = decode(encode(NAME, "", arguments, ()), CATALOGUE).arguments
    assert (values["log_target"], values["reduction"]) == (True, 1)
    assert type(values["log_target"]) is bool
    assert type(values["reduction"]) is int


def test_arguments_keep_the_order_in_which_their_storage_follows() -> None:
    arguments = {"target": SPEC, "grad_output": SPEC}
    stored = decode(encode(NAME, "", arguments, ("grad_output", "target")), CATALOGUE).stored
    assert stored == ("target", "grad_output")


def test_the_variant_is_the_one_that_the_call_names_or_the_default() -> None:
    name = "aclnnKlDivTargetBackward"
    named = decode(encode(name, "builtin", {}, ()), CATALOGUE, "community")
    unnamed = decode(encode(name, "", {}, ()), CATALOGUE, "community")
    assert (named.operator.variant, unnamed.operator.variant) == ("builtin", "community")


@each(
    ("call", "error", "message"),
    [
        (pb.Call(operator="aclnnNope"), OperatorUnknownError, "found 'aclnnNope'"),
        (pb.Call(), OperatorUnknownError, "found ''"),
        (
            pb.Call(operator="aclnnKlDivTargetBackward", variant="other"),
            OperatorUnknownError,
            "variant: aclnnKlDivTargetBackward has builtin, community, documented, found 'other'",
        ),
        (pb.Call(operator=NAME, variant="builtin"), OperatorUnknownError, "has no variants"),
    ],
)
def test_an_operator_or_variant_that_is_not_there_is_refused(
    call: pb.Call, error: type[NpucallError], message: str
) -> None:
    with pytest.raises(error, match=message):
        decode(call.SerializeToString(), CATALOGUE, "documented")


@each(
    ("argument", "error", "message"),
    [
        (pb.Argument(name="x", integer=1), ArgumentUnknownError, "'x': expected a parameter of"),
        (
            pb.Argument(name="target"),
            MessageError,
            "target: expected its value as 'tensor', found",
        ),
        (
            pb.Argument(name="target", integer=1),
            MessageError,
            "target: expected its value as 'tensor', found 'integer'",
        ),
        (
            pb.Argument(name="reduction", boolean=True),
            MessageError,
            "reduction: expected its value as 'integer', found 'boolean'",
        ),
        (
            pb.Argument(name="log_target", integer=1),
            MessageError,
            "log_target: expected its value as 'boolean', found 'integer'",
        ),
        (
            pb.Argument(name="reduction", tensor=TENSOR),
            MessageError,
            "reduction: expected its value as 'integer', found 'tensor'",
        ),
        (
            pb.Argument(name="target", stored=True, absent=pb.Absent()),
            MessageError,
            "target: expected a tensor, since `stored` is set",
        ),
        (
            pb.Argument(name="reduction", stored=True, integer=1),
            MessageError,
            "reduction: expected a tensor, since `stored` is set",
        ),
        (tensor(dtype=0), DTypeError, "target: expected a dtype of whole bytes .* value 0"),
        (tensor(dtype=30), DTypeError, "target: expected a dtype .* value 30"),  # INT4
        (tensor(format=4711), TensorLayoutError, "target: expected a format .* value 4711"),
        (tensor(format=-1), TensorLayoutError, "target: expected a format .* value -1"),
        (tensor(shape=[-1]), TensorLayoutError, "target: expected a shape of extents of 0"),
        (tensor(shape=[1] * 33), TensorLayoutError, "target: .* at most 32 dimensions, found 33"),
        (tensor(shape=[2], strides=[1, 1]), TensorLayoutError, "target: expected 1 strides"),
        (tensor(shape=[2], storage_shape=[1]), TensorLayoutError, "target: expected a view inside"),
    ],
)
def test_a_structure_that_the_c_function_could_not_be_asked_is_refused_without_aclnn_status(
    argument: pb.Argument, error: type[NpucallError], message: str
) -> None:
    call = pb.Call(operator=NAME, arguments=[argument])
    with pytest.raises(error, match=message) as caught:
        decode(call.SerializeToString(), CATALOGUE)
    assert type(caught.value) is error
    assert caught.value.parameter == argument.name
    assert caught.value.aclnn_status is None
    assert caught.value.details["operator"] == NAME


def test_an_argument_given_twice_is_refused() -> None:
    call = pb.Call(operator=NAME, arguments=[tensor(), tensor()])
    with pytest.raises(MessageError, match="target: expected one argument of this name, found two"):
        decode(call.SerializeToString(), CATALOGUE)


@each("data", [b"\xff", b"\x0a\x05abc", b"\x0a\x01\xff"])
def test_bytes_that_are_no_call_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError, match=r"call: expected a serialised npucall\.v1\.Call"):
        decode(data, CATALOGUE)


def padded(size: int) -> bytes:
    """A call of that many bytes, most of them in a field that a newer client might send."""
    call = pb.Call(operator=NAME).SerializeToString()
    filling = size - len(call) - 5
    assert 128 <= filling < 2**21
    length = bytes([filling & 127 | 128, filling >> 7 & 127 | 128, filling >> 14])
    return call + b"\xa2\x06" + length + bytes(filling)


def test_a_call_has_64_kib_at_most() -> None:
    assert decode(padded(65_536), CATALOGUE).operator.name == NAME
    with pytest.raises(MessageError, match="call: expected at most 65536 bytes, found 65537"):
        decode(padded(65_537), CATALOGUE)
