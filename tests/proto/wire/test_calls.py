"""npucall.wire.calls: a call and its bytes, what is wrong with a call in which order, the cache."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.proto.any_messages import delimited
from tests.rows import each

from npucall.dtypes import DTYPES, FLOAT
from npucall.errors import (
    ArgumentMissingError,
    ArgumentUnknownError,
    AttributeValueError,
    DTypeError,
    MessageError,
    NpucallError,
    OperatorUnknownError,
    TensorLayoutError,
)
from npucall.limits import KNOWN_CALLS_BYTES
from npucall.operators import CATALOGUE
from npucall.places import Digest, Discard
from npucall.products import A2
from npucall.tensors import Format, TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.calls import PreparedCalls, decode, decode_tensor, encode, encode_tensor
from npucall.wire.messages import join_request, split_request

NAME, VARIED = "aclnnKlDivBackward", "aclnnKlDivTargetBackward"
SPEC = TensorSpec(FLOAT, (2, 3))
TENSOR = tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_FLOAT, shape=[2, 3])
READ = ("grad_output", "self", "target")


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
def test_a_spec_comes_back_from_its_message_which_says_only_what_it_has_to(
    spec: TensorSpec,
) -> None:
    assert decode_tensor("x", encode_tensor(spec)) == spec
    dense = encode_tensor(spec.dense())
    assert not dense.strides
    assert not dense.storage_shape


OPTIONAL = {
    **dict.fromkeys(("grad_output", "self", "out"), st.none() | specs()),
    "reduction": st.none() | st.integers(-(2**63), 2**63 - 1),
    "log_target": st.none() | st.booleans(),
}


@given(st.fixed_dictionaries({}, optional=OPTIONAL))
@settings(max_examples=50)
def test_a_call_comes_back_from_its_bytes_as_it_was(arguments: dict[str, Any]) -> None:
    stored = tuple(name for name, value in arguments.items() if isinstance(value, TensorSpec))
    call = decode(encode(NAME, "", arguments, stored), CATALOGUE)
    assert call.operator.name == NAME
    assert dict(call.arguments) == arguments
    assert call.stored == stored


def test_arguments_keep_the_order_in_which_their_storage_follows() -> None:
    arguments = {"target": SPEC, "grad_output": SPEC}
    stored = decode(encode(NAME, "", arguments, ("grad_output", "target")), CATALOGUE).stored
    assert stored == ("target", "grad_output")


@each(("named", "found"), [("builtin", "builtin"), ("", "community")])
def test_the_variant_is_the_one_that_the_call_names_or_the_default(named: str, found: str) -> None:
    call = decode(encode(VARIED, named, {}, ()), CATALOGUE, "community")
    assert call.operator.variant == found


def spec_of(**fields: Any) -> tensor_pb2.TensorSpec:
    return tensor_pb2.TensorSpec(**{"dtype": 1, **fields})


AS_TENSOR = "expected its value as 'tensor', found"
WRONG: list[tuple[str, dict[str, Any], Any, str]] = [
    ("x", {"integer": 1}, ArgumentUnknownError, "expected a parameter of"),
    ("target", {}, MessageError, AS_TENSOR),
    ("target", {"scalar": pb.Scalar()}, MessageError, f"{AS_TENSOR} 'scalar'"),
    ("target", {"stored": True, "absent": pb.Absent()}, MessageError, "since `stored` is set"),
    *(
        ("target", {"tensor": spec_of(**fields)}, error, message)
        for fields, error, message in (
            ({"dtype": 0}, DTypeError, "expected a dtype of whole bytes .* value 0"),
            ({"dtype": 30}, DTypeError, "expected a dtype .* value 30"),  # INT4
            ({"format": 4711}, TensorLayoutError, "expected a format .* value 4711"),
            ({"format": -1}, TensorLayoutError, "expected a format .* value -1"),
            ({"shape": [2], "storage_shape": [1]}, TensorLayoutError, "expected a view inside"),
        )
    ),
]


@each(("name", "value", "error", "message"), WRONG)
def test_a_structure_that_the_c_function_could_not_be_asked_is_refused_without_aclnn_status(
    name: str, value: dict[str, Any], error: type[NpucallError], message: str
) -> None:
    call = pb.Call(operator=NAME, arguments=[pb.Argument(name=name, **value)])
    with pytest.raises(error, match=f"{name}'?: .*{message}") as caught:
        decode(call.SerializeToString(), CATALOGUE)
    assert type(caught.value) is error
    assert (caught.value.parameter, caught.value.aclnn_status) == (name, None)
    assert caught.value.details["operator"] == NAME


def test_an_argument_given_twice_is_refused() -> None:
    call = pb.Call(operator=NAME, arguments=[pb.Argument(name="target", tensor=TENSOR)] * 2)
    with pytest.raises(MessageError, match="target: expected one argument of this name, found two"):
        decode(call.SerializeToString(), CATALOGUE)


@each("data", [b"\xff", b"\x0a\x05abc", b"\x0a\x01\xff"])
def test_bytes_that_are_no_call_are_refused(data: bytes) -> None:
    with pytest.raises(MessageError, match=r"call: expected a serialised npucall\.v1\.Call"):
        decode(data, CATALOGUE)


def padded(call: bytes, size: int) -> bytes:
    """A call of that many bytes, most of them in a field that a newer client might send."""
    length_bytes = 2 if size < 2**14 else 3
    return call + delimited(100, bytes(size - len(call) - 2 - length_bytes))


def test_a_call_has_64_kib_at_most() -> None:
    call = pb.Call(operator=NAME).SerializeToString()
    assert decode(padded(call, 65_536), CATALOGUE).operator.name == NAME
    with pytest.raises(MessageError, match="call: expected at most 65536 bytes, found 65537"):
        decode(padded(call, 65_537), CATALOGUE)


# The order. Each fault comes before those below it.
ABSENT = pb.Absent()
OVERLAPPING = spec_of(shape=[2], strides=[0])
NULL_TENSOR = pb.Argument(name="grad_output", absent=ABSENT)
FAULTS: list[tuple[pb.Argument, type[NpucallError]]] = [
    (pb.Argument(name="x", integer=1), ArgumentUnknownError),
    (pb.Argument(name="target", tensor=spec_of(shape=[-1])), TensorLayoutError),
    (pb.Argument(name="out", tensor=OVERLAPPING), TensorLayoutError),
    (pb.Argument(name="reduction", absent=ABSENT), AttributeValueError),
]


def calls() -> PreparedCalls:
    return PreparedCalls(CATALOGUE, A2, "documented")


def of(*arguments: pb.Argument, operator: str = NAME) -> bytes:
    return pb.Call(operator=operator, arguments=arguments).SerializeToString()


@each(("fault", "error"), FAULTS)
def test_an_unknown_operator_comes_before_the_structure_and_that_before_the_rules(
    fault: pb.Argument, error: type[NpucallError]
) -> None:
    with pytest.raises(OperatorUnknownError):
        calls().of(of(fault, operator="aclnnNope"))
    with pytest.raises(error) as caught:
        calls().of(of(NULL_TENSOR, fault))
    assert caught.value.aclnn_status is None


def valid(reduction: int = 0) -> bytes:
    dense = spec_of(shape=[2])
    tensors = [pb.Argument(name=name, stored=name != "self", tensor=dense) for name in READ]
    return of(*tensors, pb.Argument(name="reduction", integer=reduction))


def test_a_call_of_the_same_bytes_is_prepared_once() -> None:
    cached = calls()
    assert cached.of(valid()) is cached.of(valid())
    assert cached.of(valid()) is not cached.of(valid() + b"\xa0\x06\x01")  # an unknown field


def test_a_failure_of_the_rules_is_not_kept() -> None:
    cached, raised = calls(), []
    for _ in range(2):
        with pytest.raises(ArgumentMissingError) as caught:
            cached.of(of(NULL_TENSOR))
        assert caught.value.aclnn_status == 161001
        raised.append(caught.value)
    assert raised[0] is not raised[1]


def test_so_many_calls_are_kept_as_there_is_room_for() -> None:
    cached = calls()
    first, count = cached.of(valid(0)), 0
    each = cached.kept.used + 16  # a large number takes a byte more
    while cached.kept.used + each <= KNOWN_CALLS_BYTES:
        cached.of(valid(count := count + 1))
    assert cached.of(valid(0)) is first
    for reduction in (count + 1, count + 2):
        cached.of(valid(reduction))
    assert cached.of(valid(0)) is not first


def test_a_call_of_more_than_8_kib_is_not_kept() -> None:
    cached, kept, too_long = calls(), padded(valid(), 8192), padded(valid(), 8193)
    assert (len(kept), len(too_long)) == (8192, 8193)
    assert cached.of(kept) is cached.of(kept)
    assert cached.of(too_long) is not cached.of(too_long)


# Messages like one that came before.


def message_of(call: bytes, *sizes: int) -> bytes:
    return join_request(call, [memoryview(bytes([n + 1]) * size) for n, size in enumerate(sizes)])


def test_a_message_of_a_known_call_is_taken_without_parsing_and_any_other_one_is_not() -> None:
    cached, message = calls(), message_of(valid(), 8, 8)
    assert cached.received(message) is None  # nobody has prepared its call
    prepared = cached.of(valid())
    received = cached.received(message)
    assert received is not None
    assert received[0] is prepared
    storages = prepared.storages(split_request(message).storage)  # type: ignore[arg-type]
    assert list(received[1].items()) == list(storages.items())
    generated = pb.ExecuteRequest.FromString(message)
    for storage in generated.storage:
        storage.ClearField("padding")
    others = [
        b"", b"\x0a", message[:-1], message + b"\x12", message_of(valid(), 8),
        message_of(valid(), 8, 4), message_of(valid(), 4, 8), message_of(valid(), 4, 12),
        message_of(valid(1), 8, 8), generated.SerializeToString(),
        join_request(valid(), [Digest(bytes(32)), memoryview(bytes(8))]),
        join_request(valid(), [memoryview(bytes(8))] * 2, {"grad_input": Discard()}),
    ]  # fmt: skip
    assert [cached.received(other) for other in others] == [None] * len(others)


def test_a_byte_that_differs_is_data_or_makes_a_message_unknown() -> None:
    cached, message = calls(), message_of(valid(), 8, 8)
    prepared = cached.of(valid())
    data = 0
    for place in range(len(message)):
        changed = bytearray(message)
        changed[place] ^= 0x80
        received = cached.received(bytes(changed))
        if received is not None:
            data += 1
            storages = prepared.storages(split_request(bytes(changed)).storage)  # type: ignore[arg-type]
            assert received[1] == storages
    assert data == 16


def test_a_call_that_is_not_kept_is_not_known() -> None:
    cached, call = calls(), padded(valid(), 8193)
    cached.of(call)
    assert cached.received(message_of(call, 8, 8)) is None


integers = st.integers(-(2**63), 2**63 - 1) | st.integers(-1, 4)
lists = st.lists(integers, max_size=3)
tensors = st.builds(
    tensor_pb2.TensorSpec,
    dtype=st.integers(-1, 40),
    shape=lists,
    strides=lists,
    offset=integers,
    storage_shape=lists,
    format=st.integers(-1, 60),
)
values = st.one_of(
    st.fixed_dictionaries({"tensor": tensors}, optional={"stored": st.booleans()}),
    *(
        st.fixed_dictionaries({member: value})
        for member, value in {
            "integer": integers,
            "number": st.floats(),
            "text": st.text(max_size=4),
            "scalar": st.builds(pb.Scalar, dtype=st.integers(-1, 40), value=st.binary(max_size=16)),
            "integers": st.builds(pb.IntArray, values=lists),
            "absent": st.just(ABSENT),
            "stored": st.booleans(),
        }.items()
    ),
)
arguments = st.builds(
    lambda name, value: pb.Argument(name=name, **value),
    st.sampled_from([*READ, "reduction", "log_target", "out", "x"]),
    values,
)
calls_of_any_kind = st.builds(
    lambda *given: of(*given[1], operator=given[0]),
    st.sampled_from([*sorted({operator.name for operator in CATALOGUE}), "aclnnNope"]),
    st.lists(arguments, max_size=5),
)


def made_of(specs: list[tensor_pb2.TensorSpec], shape: list[int], odd: int) -> bytes:
    """All tensors of a call are of one shape, but for one."""
    plain = spec_of(dtype=1 + odd % 2, shape=shape)
    given = [specs[0] if number == odd % 3 else plain for number in range(3)]
    named = zip(READ, given, strict=True)
    return of(*(pb.Argument(name=name, stored=True, tensor=spec) for name, spec in named))


calls_of_tensors = st.builds(
    made_of, st.lists(tensors, min_size=1, max_size=1), lists, st.integers(0, 5)
)


@given(st.one_of(calls_of_any_kind, calls_of_tensors, st.binary(max_size=60)))
@settings(max_examples=300)
def test_any_bytes_are_prepared_or_refused_by_an_error_of_ours(data: bytes) -> None:
    try:
        assert calls().of(data).operator in set(CATALOGUE)
    except NpucallError as error:
        assert error.reason != "UNKNOWN"  # noqa: PT017  # either outcome is right
