"""npucall.wire.messages against the generated classes: each reads what the other writes."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from npucall.errors import MessageError
from npucall.places import RegionPart
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.messages import join_request, join_response, split_request, split_response

ALIGNMENT = 16  # the proto promises it to senders that pad

regions = st.builds(
    RegionPart, st.binary(max_size=20), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)
)
storages = st.lists(st.binary(max_size=300), max_size=4)
places = st.lists(st.one_of(st.binary(max_size=300), regions), max_size=4)
calls = st.builds(
    pb.Call,
    operator=st.text(max_size=20),
    variant=st.text(max_size=20),
    arguments=st.lists(
        st.builds(pb.Argument, name=st.text(max_size=5), integer=st.integers(-(2**63), 2**63 - 1)),
        max_size=3,
    ),
)


@given(calls, storages)
def test_the_class_reads_the_request_that_we_join(call: pb.Call, storage: list[bytes]) -> None:
    request = pb.ExecuteRequest.FromString(join_request(call.SerializeToString(), storage))
    assert request.call == call
    assert [entry.data for entry in request.storage] == storage


@given(calls, storages)
def test_we_split_the_request_that_the_class_writes(call: pb.Call, storage: list[bytes]) -> None:
    entries = [tensor_pb2.Storage(data=data) for data in storage]
    request = pb.ExecuteRequest(call=call, storage=entries)
    split = split_request(request.SerializeToString())
    assert pb.Call.FromString(split.call) == call
    assert split.storage == storage


@given(st.text(), st.integers(0, 2**64 - 1), storages)
def test_the_class_reads_the_response_that_we_join(
    variant: str, spent: int, storage: list[bytes]
) -> None:
    reply, timings = pb.Reply(variant=variant), pb.Timings(run_ns=spent)
    joined = join_response(reply.SerializeToString(), timings.SerializeToString(), storage)
    response = pb.ExecuteResponse.FromString(joined)
    assert (response.reply, response.timings) == (reply, timings)
    assert [entry.data for entry in response.storage] == storage


@given(st.text(), st.integers(0, 2**64 - 1), storages)
def test_we_split_the_response_that_the_class_writes(
    variant: str, spent: int, storage: list[bytes]
) -> None:
    reply, timings = pb.Reply(variant=variant), pb.Timings(run_ns=spent)
    entries = [tensor_pb2.Storage(data=data) for data in storage]
    response = pb.ExecuteResponse(reply=reply, timings=timings, storage=entries)
    split = split_response(response.SerializeToString())
    assert pb.Reply.FromString(split.reply) == reply
    assert pb.Timings.FromString(split.timings) == timings
    assert split.storage == storage


# Around 128 and 16384 a length takes one byte more.
@given(st.binary(max_size=200), st.lists(st.sampled_from([0, 1, 100, 130, 16380]), max_size=4))
@example(b"", [*range(96, 132)])
@example(b"", [*range(16350, 16390)])
def test_every_data_starts_at_a_multiple_of_16(call: bytes, sizes: list[int]) -> None:
    message = join_request(call, [bytes(size) for size in sizes])
    base = np.frombuffer(message, np.uint8).ctypes.data
    views = [np.frombuffer(data, np.uint8) for data in split_request(message).storage if len(data)]
    assert [(view.ctypes.data - base) % ALIGNMENT for view in views] == [0] * len(views)


def test_storages_are_views_of_the_message() -> None:
    message = join_request(b"", [b"\1\2\3"])
    (storage,) = split_request(message).storage
    assert storage.obj is message


def test_padding_is_less_than_the_alignment_and_a_length() -> None:
    assert len(join_request(b"", [b"x"])) < 2 * ALIGNMENT


def test_storage_may_be_any_buffer() -> None:
    sent = [b"ab", bytearray(b"cd"), memoryview(b"ef")]
    assert split_request(join_request(b"", sent)).storage == sent


def test_a_request_without_a_call_has_an_empty_one() -> None:
    assert split_request(b"") == (b"", [], {})


@pytest.mark.parametrize("storage", [b"\x12\x00", b"\x12\x02\x0a\x00", b"\x12\x02\x78\x01"])
def test_a_storage_without_a_place_is_left_to_who_knows_whether_it_follows(storage: bytes) -> None:
    pb.ExecuteRequest.FromString(storage)
    assert split_request(storage).storage == [None]


def test_bytes_of_two_calls_cannot_make_one_field() -> None:
    # `operator` of 5 bytes, of which the first part of the call has 1 and the second 4.
    message = b"\x0a\x03\x0a\x05a" + b"\x0a\x04bcde"
    with pytest.raises(DecodeError):
        pb.ExecuteRequest.FromString(message)
    with pytest.raises(MessageError):
        split_request(message)


def test_a_tag_of_more_bytes_than_32_bits_need_is_refused() -> None:
    message = b"\xa8\x80\x80\x80\x80\x00\x01"  # field 5, a number, its tag in 6 bytes
    with pytest.raises(DecodeError):
        pb.ExecuteRequest.FromString(message)
    with pytest.raises(MessageError, match="a number that does not end"):
        split_request(message)


@pytest.mark.parametrize("message", [b"\x00\x00", b"\x02\x00", b"\x12\x04\x7a\x00\x00\x00"])
def test_field_number_0_is_refused(message: bytes) -> None:
    with pytest.raises(DecodeError):
        pb.ExecuteRequest.FromString(message)
    with pytest.raises(MessageError, match=r"(ExecuteRequest|Storage): expected"):
        split_request(message)


@pytest.mark.parametrize("prefix", [b"", b"\x7a\x00"], ids=["top level", "in a storage"])
@pytest.mark.parametrize("depth", [1, 99, 100, 101])
def test_groups_nest_as_deep_as_the_class_lets_them(prefix: bytes, depth: int) -> None:
    message = prefix + b"\x2b" * depth + b"\x2c" * depth  # field 5 starts and ends
    if prefix:
        message = (
            pb.ExecuteRequest(  # the class writes the length
                storage=[tensor_pb2.Storage(padding=message)]
            ).SerializeToString()[:1]
            + _length(message)
        )
    accepted = _accepts(message)
    assert accepted is (depth + bool(prefix) <= 100)
    if accepted:
        split_request(message)
    else:
        with pytest.raises(MessageError, match=r"(ExecuteRequest|Storage): expected"):
            split_request(message)


def _length(data: bytes) -> bytes:
    return bytes([len(data)]) + data if len(data) < 128 else _two_bytes(len(data)) + data


def _two_bytes(length: int) -> bytes:
    return bytes([length & 127 | 128, length >> 7])


def _accepts(message: bytes) -> bool:
    try:
        pb.ExecuteRequest.FromString(message)
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize(
    "message",
    [b"\x22\x00" * 4097, b"\x12\x00" * 4097, b"\x2b" + b"\x30\x00" * 4097 + b"\x2c"],
    ids=["unknown fields", "storages", "a group"],
)
def test_more_fields_than_any_call_has_are_refused(message: bytes) -> None:
    with pytest.raises(MessageError):
        split_request(message)


def test_timings_may_stand_behind_a_storage() -> None:
    timings = pb.Timings(run_ns=5).SerializeToString()
    message = (
        join_response(b"", b"", [b"abc"])
        + pb.ExecuteResponse(timings=pb.Timings(run_ns=5)).SerializeToString()
    )
    message = message[message.index(b"\x1a") :]  # without the empty reply and timings
    message = b"\x0a\x00" + message
    for _ in range(2):
        assert split_response(message) == (b"", timings, [b"abc"])


def place_in(storage: tensor_pb2.Storage) -> bytes | RegionPart:
    """Where a storage of the class is, as we say it."""
    region = storage.region
    if storage.WhichOneof("place") == "data":
        return storage.data
    return RegionPart(region.id, region.offset, region.length)


@given(calls, places, st.dictionaries(st.text(max_size=5), regions))
def test_the_class_reads_the_regions_that_we_join(
    call: pb.Call, storage: list[bytes | RegionPart], outputs: dict[str, RegionPart]
) -> None:
    request = pb.ExecuteRequest.FromString(join_request(call.SerializeToString(), storage, outputs))
    assert request.call == call
    assert list(map(place_in, request.storage)) == storage
    written = {place.output: RegionPart(*_fields(place.region)) for place in request.output_places}
    assert written == outputs


@given(calls, places, st.dictionaries(st.text(max_size=5), regions))
def test_we_split_the_regions_that_the_class_writes(
    call: pb.Call, storage: list[bytes | RegionPart], outputs: dict[str, RegionPart]
) -> None:
    request = pb.ExecuteRequest(
        call=call,
        storage=[
            tensor_pb2.Storage(region=tensor_pb2.Region(**place._asdict()))
            if isinstance(place, RegionPart)
            else tensor_pb2.Storage(data=place)
            for place in storage
        ],
        output_places=[
            pb.OutputPlace(output=name, region=tensor_pb2.Region(**region._asdict()))
            for name, region in outputs.items()
        ],
    )
    split = split_request(request.SerializeToString())
    assert (split.storage, split.output_places) == (storage, outputs)


@given(places)
def test_regions_of_a_response_come_back(storage: list[bytes | RegionPart]) -> None:
    assert split_response(join_response(b"", b"", storage)).storage == storage


def test_data_behind_a_region_stays_aligned() -> None:
    message = join_request(b"call", [RegionPart(b"x" * 16, 1, 2), b"abc"])
    assert message.index(b"abc") % ALIGNMENT == 0


def test_the_last_place_of_a_storage_counts() -> None:
    both = tensor_pb2.Storage(data=b"abc").SerializeToString()
    both += tensor_pb2.Storage(region=tensor_pb2.Region(length=3)).SerializeToString()
    both += tensor_pb2.Storage(data=b"xyz").SerializeToString()
    message = bytes([0x12, len(both)]) + both
    assert split_request(message).storage == [b"xyz"]


def test_an_output_with_two_places_is_refused() -> None:
    place = pb.OutputPlace(output="out", discard=True)
    message = pb.ExecuteRequest(output_places=[place, place]).SerializeToString()
    with pytest.raises(MessageError, match="output_places: expected one place for an output"):
        split_request(message)


def _fields(region: tensor_pb2.Region) -> tuple[bytes, int, int]:
    return region.id, region.offset, region.length
