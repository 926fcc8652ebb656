"""npucall.wire.messages against the generated classes: each reads what the other writes."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from tests.proto.any_messages import delimited
from tests.rows import each

from npucall.errors import MessageError
from npucall.places import RegionPart
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.messages import (
    join_request,
    join_response,
    known_answers,
    split_request,
    split_response,
)
from npucall.wire.program_messages import StepRequest, join_program
from npucall.wire.replies import Timings, encode_timings

ALIGNMENT = 16  # the proto promises it to senders that pad
DATA = b"\x01\x02\x03\x04"

regions = st.builds(
    RegionPart, st.binary(max_size=20), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)
)
places = st.lists(st.one_of(st.binary(max_size=300), regions), max_size=4)
outputs_at = st.dictionaries(st.text(max_size=5), regions)
calls = st.builds(
    pb.Call,
    operator=st.text(max_size=20),
    variant=st.text(max_size=20),
    arguments=st.lists(
        st.builds(pb.Argument, name=st.text(max_size=5), integer=st.integers(-(2**63), 2**63 - 1)),
        max_size=3,
    ),
)
replies = st.builds(pb.Reply, variant=st.text())
timings = st.builds(pb.Timings, run_ns=st.integers(0, 2**64 - 1))


def storage_at(place: bytes | RegionPart) -> tensor_pb2.Storage:
    """The class of a storage."""
    if isinstance(place, RegionPart):
        return tensor_pb2.Storage(region=tensor_pb2.Region(**place._asdict()))
    return tensor_pb2.Storage(data=place)


def without_padding(message: Any) -> Any:
    for storage in message.storage:
        storage.ClearField("padding")
    return message


@given(calls, places, outputs_at)
def test_a_request_is_the_same_to_us_and_to_the_class(
    call: pb.Call, storage: list[bytes | RegionPart], outputs: dict[str, RegionPart]
) -> None:
    request = pb.ExecuteRequest(
        call=call,
        storage=map(storage_at, storage),
        output_places=[
            pb.OutputPlace(output=name, region=tensor_pb2.Region(**region._asdict()))
            for name, region in outputs.items()
        ],
    )
    joined = join_request(call.SerializeToString(), storage, outputs)
    assert without_padding(pb.ExecuteRequest.FromString(joined)) == request
    for message in joined, request.SerializeToString():
        split = split_request(message)
        assert pb.Call.FromString(split.call) == call
        assert (split.storage, split.output_places) == (storage, outputs)


@given(replies, timings, places)
def test_a_response_is_the_same_to_us_and_to_the_class(
    reply: pb.Reply, spent: pb.Timings, storage: list[bytes | RegionPart]
) -> None:
    response = pb.ExecuteResponse(reply=reply, timings=spent, storage=map(storage_at, storage))
    joined = join_response(reply.SerializeToString(), spent.SerializeToString(), storage)
    assert without_padding(pb.ExecuteResponse.FromString(joined)).storage == response.storage
    for message in joined, response.SerializeToString():
        split = split_response(message)
        assert pb.Reply.FromString(split.reply) == reply
        assert pb.Timings.FromString(split.timings) == spent
        assert split.storage == storage


@given(st.binary(max_size=300), st.lists(st.binary(max_size=300), max_size=3))
def test_an_answer_with_its_head_known_has_the_bytes_of_any_other(
    reply: bytes, outputs: list[bytes]
) -> None:
    spent = encode_timings(Timings(1, 2))
    parts = known_answers(reply, len(spent), list(map(len, outputs))).parts([spent, *outputs])
    assert b"".join(parts) == join_response(reply, spent, outputs)


# Around 128 and 16384 a length takes one byte more.
@given(st.binary(max_size=200), st.lists(st.sampled_from([0, 1, 100, 130, 16380]), max_size=4))
@example(b"", [*range(96, 132)])
@example(b"", [*range(16350, 16390)])
def test_every_data_starts_at_a_multiple_of_16(call: bytes, sizes: list[int]) -> None:
    storage = [RegionPart(b"x" * 16, 1, 2), *(bytes(size) for size in sizes)]
    message = join_request(call, storage)
    base = np.frombuffer(message, np.uint8).ctypes.data
    found = split_request(message).storage
    views = [np.frombuffer(data, np.uint8) for data in found[1:] if len(data)]  # type: ignore[arg-type]
    assert [(view.ctypes.data - base) % ALIGNMENT for view in views] == [0] * len(views)


@each("edge", [128, 16_384])
def test_a_program_with_steps_of_any_length_is_what_the_generated_class_reads(edge: int) -> None:
    """A step of so many bytes takes one more for its length; padding depends on what is before."""
    for length, before in product(range(edge - 40, edge), range(16)):
        made = [pb.Call(operator="a" * before), pb.Call(operator="b" * length)]
        first, second = (call.SerializeToString() for call in made)
        steps = [StepRequest(first, [], {}), StepRequest(second, [DATA], {})]
        message = join_program(steps)
        read = pb.ExecuteProgramRequest.FromString(message)
        assert [step.call for step in read.steps] == made
        assert [storage.data for step in read.steps for storage in step.storage] == [DATA]
        known = StepRequest(second, [memoryview(DATA)], {})
        assert [join_program([steps[0], known]) for _ in range(2)] == [message] * 2


def test_storages_are_views_of_the_message_with_little_padding() -> None:
    message = join_request(b"", [b"\1"])
    (storage,) = split_request(message).storage
    assert isinstance(storage, memoryview)
    assert storage.obj is message
    assert len(message) < 2 * ALIGNMENT


def test_storage_may_be_any_buffer() -> None:
    sent = [b"ab", bytearray(b"cd"), memoryview(b"ef")]
    assert split_request(join_request(b"", sent)).storage == sent


MALFORMED = [
    # `operator` of 5 bytes, of which the first part of the call has 1 and the second 4.
    (b"\x0a\x03\x0a\x05a" + b"\x0a\x04bcde", "ExecuteRequest: expected"),
    # Field 5, a number, its tag in 6 bytes, which is more than 32 bits need.
    (b"\xa8\x80\x80\x80\x80\x00\x01", "a number that does not end"),
    # Field number 0.
    (b"\x00\x00", "ExecuteRequest: expected"),
    (b"\x02\x00", "ExecuteRequest: expected"),
    (b"\x12\x04\x7a\x00\x00\x00", "(ExecuteRequest|Storage): expected"),
]


@each(("message", "why"), MALFORMED)
def test_what_the_class_refuses_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(DecodeError):
        pb.ExecuteRequest.FromString(message)
    with pytest.raises(MessageError, match=why):
        split_request(message)


@each("inside", [False, True])
@each("depth", [1, 99, 100, 101])
def test_groups_nest_as_deep_as_the_class_lets_them(inside: bool, depth: int) -> None:
    groups = b"\x2b" * depth + b"\x2c" * depth  # field 5 starts and ends
    message = delimited(2, delimited(15, b"") + groups) if inside else groups
    if depth + inside <= 100:
        pb.ExecuteRequest.FromString(message)
        split_request(message)
        return
    with pytest.raises(DecodeError):
        pb.ExecuteRequest.FromString(message)
    with pytest.raises(MessageError, match=r"(ExecuteRequest|Storage): expected"):
        split_request(message)


# Unknown fields, storages, a group.
@each("message", [b"\x22\x00" * 4097, b"\x12\x00" * 4097, b"\x2b" + b"\x30\x00" * 4097 + b"\x2c"])
def test_more_fields_than_any_call_has_are_refused(message: bytes) -> None:
    with pytest.raises(MessageError):
        split_request(message)


def test_timings_may_stand_behind_a_storage() -> None:
    spent = pb.Timings(run_ns=5).SerializeToString()
    message = join_response(b"", b"", [b"abc"])
    message += pb.ExecuteResponse(timings=pb.Timings(run_ns=5)).SerializeToString()
    message = message[message.index(b"\x1a") :]  # without the empty reply and timings
    message = b"\x0a\x00" + message
    for _ in range(2):
        assert split_response(message) == (b"", spent, [b"abc"])


def test_an_output_with_two_places_is_refused() -> None:
    place = pb.OutputPlace(output="out", discard=True)
    message = pb.ExecuteRequest(output_places=[place, place]).SerializeToString()
    with pytest.raises(MessageError, match="output_places: expected one place for an output"):
        split_request(message)
