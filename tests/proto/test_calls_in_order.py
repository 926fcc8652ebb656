"""npucall.wire.calls: the order of checks, the cache, and calls of any bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rows import each

from npucall.declare.catalogue import Catalogue
from npucall.errors import (
    ArgumentMissingError,
    ArgumentUnknownError,
    AttributeValueError,
    MessageError,
    NpucallError,
    OperatorUnknownError,
    TensorLayoutError,
)
from npucall.operators import CATALOGUE
from npucall.products import product_of
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.calls import PreparedCalls, decode

if TYPE_CHECKING:
    from npucall.declare.declaration import Operator

A2 = product_of("Ascend910B1")
NAME = "aclnnKlDivBackward"
DENSE = tensor_pb2.TensorSpec(dtype=1, shape=[2])
OVERLAPPING = tensor_pb2.TensorSpec(dtype=1, shape=[2], strides=[0])

# One call that has every fault; each test mends those that come before its own.
FAULTS: dict[str, tuple[list[pb.Argument], type[NpucallError]]] = {
    "unknown name": ([pb.Argument(name="x", integer=1)], ArgumentUnknownError),
    "negative extent": (
        [pb.Argument(name="target", tensor=tensor_pb2.TensorSpec(dtype=1, shape=[-1]))],
        TensorLayoutError,
    ),
    "output overlaps itself": ([pb.Argument(name="out", tensor=OVERLAPPING)], TensorLayoutError),
    "null for a number": (
        [pb.Argument(name="reduction", absent=pb.Absent())],
        AttributeValueError,
    ),
    "null tensor": ([pb.Argument(name="grad_output", absent=pb.Absent())], ArgumentMissingError),
}


def calls(catalogue: Catalogue = CATALOGUE) -> PreparedCalls:
    return PreparedCalls(catalogue, A2, "documented")


def valid(reduction: int = 0, **fields: Any) -> bytes:
    tensors = [
        pb.Argument(name=name, stored=name != "self", tensor=DENSE)
        for name in ("grad_output", "self", "target")
    ]
    number = pb.Argument(name="reduction", integer=reduction)
    call = pb.Call(operator=NAME, arguments=[*tensors, number], **fields)
    return call.SerializeToString()


@each("arguments", [fault for fault, _ in FAULTS.values()])
def test_an_unknown_operator_comes_before_every_other_fault(arguments: list[pb.Argument]) -> None:
    call = pb.Call(operator="aclnnNope", arguments=arguments).SerializeToString()
    with pytest.raises(OperatorUnknownError):
        calls().of(call)


@each("fault", list(FAULTS)[:-1])
def test_structure_comes_before_the_rules_of_the_operator(fault: str) -> None:
    arguments, error = FAULTS[fault]
    null, _ = FAULTS["null tensor"]
    call = pb.Call(operator=NAME, arguments=[*null, *arguments]).SerializeToString()
    with pytest.raises(error) as caught:
        calls().of(call)
    assert caught.value.aclnn_status is None


def test_the_rules_are_asked_when_the_structure_is_right() -> None:
    arguments, error = FAULTS["null tensor"]
    with pytest.raises(error) as caught:
        calls().of(pb.Call(operator=NAME, arguments=arguments).SerializeToString())
    assert caught.value.aclnn_status == 161001


def test_bytes_that_are_no_call_come_before_the_operator() -> None:
    call = pb.Call(operator="aclnnNope").SerializeToString() + b"\xff"
    with pytest.raises(MessageError):
        calls().of(call)


class CountingCatalogue(Catalogue):
    """Counts the look-ups, of which every decoded call makes one."""

    def __init__(self) -> None:
        super().__init__(CATALOGUE)
        self.looked_up = 0

    def find(self, name: str, variant: str = "", default: str = "") -> Operator[Any, Any]:
        self.looked_up += 1
        return super().find(name, variant, default)


def test_a_call_of_the_same_bytes_is_prepared_once() -> None:
    cached = calls()
    assert cached.of(valid()) is cached.of(valid())


def test_calls_that_mean_the_same_in_other_bytes_are_prepared_apart() -> None:
    cached = calls()
    assert cached.of(valid()) is not cached.of(valid() + b"\xa0\x06\x01")  # an unknown field


def test_a_failure_is_not_kept() -> None:
    catalogue = CountingCatalogue()
    cached = calls(catalogue)
    arguments, error = FAULTS["null tensor"]
    call = pb.Call(operator=NAME, arguments=arguments).SerializeToString()
    for _ in range(3):
        with pytest.raises(error):
            cached.of(call)
    assert catalogue.looked_up == 3


def test_an_error_of_one_caller_is_not_that_of_the_next() -> None:
    cached = calls()
    arguments, _ = FAULTS["null tensor"]
    call = pb.Call(operator=NAME, arguments=arguments).SerializeToString()
    with pytest.raises(NpucallError) as first:
        cached.of(call)
    with pytest.raises(NpucallError) as second:
        cached.of(call)
    assert first.value is not second.value


def test_1024_calls_are_kept_and_then_the_oldest_is_given_up() -> None:
    cached = calls()
    oldest, second = cached.of(valid(0)), cached.of(valid(1))
    for reduction in range(2, 1025):
        cached.of(valid(reduction))
    assert cached.of(valid(1)) is second
    assert cached.of(valid(0)) is not oldest


def test_a_call_of_more_than_8_kib_is_not_kept() -> None:
    def padded(size: int) -> bytes:
        filling = size - len(valid()) - 4
        header = b"\xa2\x06" + bytes([filling & 127 | 128, filling >> 7])
        return valid() + header + bytes(filling)

    cached = calls()
    assert cached.of(padded(8192)) is cached.of(padded(8192))
    assert cached.of(padded(8193)) is not cached.of(padded(8193))


integers = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 4)
tensors = st.builds(
    tensor_pb2.TensorSpec,
    dtype=st.integers(-1, 40),
    shape=st.lists(integers, max_size=3),
    strides=st.lists(integers, max_size=3),
    offset=integers,
    storage_shape=st.lists(integers, max_size=3),
    format=st.integers(-1, 60),
)
scalars = st.builds(pb.Scalar, dtype=st.integers(-1, 40), value=st.binary(max_size=16))
others = st.one_of(
    st.builds(pb.Argument, name=st.just("log_target"), number=st.floats()),
    st.builds(pb.Argument, name=st.just("reduction"), text=st.text(max_size=4)),
    st.builds(pb.Argument, name=st.just("reduction"), scalar=scalars),
    st.builds(
        pb.Argument,
        name=st.just("reduction"),
        integers=st.builds(pb.IntArray, values=st.lists(integers, max_size=3)),
    ),
)
arguments_of_any_kind = st.builds(
    pb.Argument,
    name=st.sampled_from(["grad_output", "self", "target", "reduction", "log_target", "out", "x"]),
    stored=st.booleans(),
) | st.one_of(
    others,
    st.builds(pb.Argument, name=st.sampled_from(["target", "out"]), tensor=tensors),
    st.builds(pb.Argument, name=st.just("reduction"), integer=integers),
    st.builds(pb.Argument, name=st.just("log_target"), absent=st.just(pb.Absent())),
)
calls_of_any_kind = st.builds(
    pb.Call,
    operator=st.sampled_from([*{operator.name for operator in CATALOGUE}, "aclnnNope"]),
    variant=st.sampled_from(["", "builtin", "other"]),
    arguments=st.lists(arguments_of_any_kind, max_size=5),
)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_call_or_an_error_of_ours(data: bytes) -> None:
    try:
        assert decode(data, CATALOGUE).operator in set(CATALOGUE)
    except NpucallError as error:
        assert error.reason != "UNKNOWN"  # noqa: PT017  # either outcome is right


@given(calls_of_any_kind)
@settings(max_examples=300)
def test_a_call_of_any_content_is_prepared_or_refused_by_an_error_of_ours(call: pb.Call) -> None:
    try:
        assert calls().of(call.SerializeToString()).operator.name == call.operator
    except NpucallError as error:
        assert error.reason != "UNKNOWN"  # noqa: PT017


@given(st.lists(tensors, min_size=3, max_size=3), st.lists(integers, max_size=3), st.integers(0, 5))
@settings(max_examples=300)
def test_tensors_of_any_content_are_prepared_or_refused_by_an_error_of_ours(
    specs: list[tensor_pb2.TensorSpec], shape: list[int], reduction: int
) -> None:
    names = ("grad_output", "self", "target")
    listed = [pb.Argument(name=n, stored=True, tensor=s) for n, s in zip(names, specs, strict=True)]
    for argument in listed:
        argument.tensor.CopyFrom(tensor_pb2.TensorSpec(dtype=1 + reduction % 2, shape=shape))
    listed[reduction % 3].tensor.CopyFrom(specs[0])
    call = pb.Call(operator=NAME, arguments=listed)
    try:
        assert calls().of(call.SerializeToString()).stored == names
    except NpucallError as error:
        assert error.reason != "UNKNOWN"  # noqa: PT017
