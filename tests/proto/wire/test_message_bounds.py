"""What one message can cost: fields, depth, and bytes besides the data of its storages."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError
from hypothesis import assume, given
from tests.proto.any_messages import LONG_NUMBER, delimited, requests, tagged
from tests.rows import each

from npucall.errors import MessageError
from npucall.exchange import Begin, Chunk
from npucall.limits import (
    MAX_DEPTH,
    MAX_FIELDS,
    MAX_NESTED_FIELDS,
    MAX_OVERHEAD_BYTES,
    MAX_PROGRAM_OVERHEAD_BYTES,
    MIB,
)
from npucall.operators import CATALOGUE
from npucall.places import RegionPart
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import decode
from npucall.wire.frames import join_begin, join_chunk, split_request_frame
from npucall.wire.messages import join_request, split_request
from npucall.wire.protobuf import Malformed, data_bytes_in

CALL = pb.Call(operator="aclnnKlDivBackward").SerializeToString()
REQUEST, FRAME = pb.ExecuteRequest.DESCRIPTOR, pb.ExecuteStreamRequest.DESCRIPTOR
GROUP, END = b"\x4b", b"\x4c"  # field 9, unknown everywhere
UNKNOWN = b"\x48\x00"
"""A field that no message has; in front, only the class can read what follows."""


def begin(request: bytes) -> bytes:
    return UNKNOWN + delimited(2, delimited(1, request))


def groups(fields: int, depth: int = 1) -> bytes:
    """So many empty groups, each of ``depth`` within each other."""
    return (GROUP * depth + END * depth) * (fields // depth)


BOMBS = {
    "groups in a storage": delimited(2, groups(MIB)),
    "deep groups in a storage": delimited(2, groups(MIB, 90)),
    "groups in a place for an output": delimited(3, groups(MIB)),
    "groups in a region": delimited(2, delimited(2, groups(MIB))),
    "groups in the call": delimited(1, groups(30_000)),
    "storages": UNKNOWN + delimited(2, b"") * MIB,
    "places": UNKNOWN + delimited(3, b"") * MIB,
    "arguments": delimited(1, delimited(3, b"") * 30_000),
}


REFUSED = "more than [0-9]+ fields|bytes without the data|call: expected at most 65536 bytes"


def read_all(message: bytes) -> None:
    decode(split_request(message).call, CATALOGUE)


def read_frame(message: bytes) -> None:
    _, frame = split_request_frame(message)
    assert isinstance(frame, Begin)
    read_all(frame.request)


@each("bomb", BOMBS.values())
def test_many_small_fields_are_refused_for_their_number_or_bytes(bomb: bytes) -> None:
    for message in bomb, UNKNOWN + bomb:
        with pytest.raises(MessageError, match=REFUSED):
            read_all(message)
        with pytest.raises(MessageError, match=REFUSED):
            read_frame(begin(message))


@each("bomb", [GROUP * 200 + END * 200, GROUP * 60_000, UNKNOWN * 60_000])
def test_frames_have_the_same_budget(bomb: bytes) -> None:
    for message in bomb, begin(bomb), delimited(3, bomb), delimited(4, bomb):
        with pytest.raises(MessageError, match=r"more than 32768 fields or 100 levels"):
            split_request_frame(message)


def test_a_call_has_at_most_4096_fields_at_any_depth() -> None:
    def of_tensors(count: int) -> bytes:
        tensors = pb.TensorList(tensors=[{"dtype": 1, "shape": [1, 1, 1, 1]}] * count)  # type: ignore[list-item]
        return pb.Call(
            operator="aclnnKlDivBackward", arguments=[pb.Argument(name="self", tensors=tensors)]
        ).SerializeToString()

    # The operator, the argument, its name, its list; then an entry with dtype and shape each.
    allowed, refused = of_tensors((4096 - 4) // 3), of_tensors((4096 - 4) // 3 + 1)
    assert len(allowed) > 2 * MAX_FIELDS
    with pytest.raises(MessageError, match="expected its value as 'tensor'"):
        decode(allowed, CATALOGUE)
    with pytest.raises(MessageError, match="more than 4096 fields"):
        decode(refused, CATALOGUE)


def test_as_many_storages_as_a_request_may_have_fit_in_every_spelling() -> None:
    part = RegionPart(b"x" * 16, 2**64 - 1, 2**64 - 1)
    for place in b"", b"x" * 100, part:
        message = join_request(CALL, [place] * (MAX_FIELDS - 1))
        found = split_request(message).storage
        assert len(found) == MAX_FIELDS - 1
        assert split_request(message[len(CALL) + 2 :] + message[: len(CALL) + 2]).storage == found


@each(
    "spelled",
    [
        lambda padding: delimited(1, CALL) + delimited(2, delimited(1, padding) + data(b"x")),
        lambda padding: delimited(2, data(b"x") + delimited(1, padding)) + delimited(1, CALL),
        lambda padding: delimited(2, data(padding) + data(b"x")) + delimited(1, CALL),
        lambda padding: delimited(1, CALL) + delimited(9, padding),
    ],
)
def test_what_a_request_has_besides_data_is_bounded(spelled: Callable[[bytes], bytes]) -> None:
    besides = len(spelled(bytes(200_000))) - 200_000 - 1
    most = bytes(MAX_OVERHEAD_BYTES - besides - 8)
    split_request(spelled(most))
    with pytest.raises(MessageError, match="expected at most 262144 bytes without the data"):
        split_request(spelled(most + bytes(20)))


def test_the_data_of_a_request_is_not_bounded_so() -> None:
    message = join_request(CALL, [bytes(MIB)] * 3)
    assert [len(each) for each in split_request(message).storage] == [MIB] * 3
    assert [len(each) for each in split_request(UNKNOWN + message).storage] == [MIB] * 3


def test_what_a_frame_has_besides_data_is_bounded() -> None:
    junk = delimited(9, bytes(MAX_OVERHEAD_BYTES))
    request = join_request(CALL, [bytes(MIB)])
    for frame in (
        join_begin(1, Begin(request)) + junk,
        join_begin(1, Begin(request, request_id="x" * MAX_OVERHEAD_BYTES)),
        b"\x08\x01" + delimited(3, delimited(3, bytes(MAX_OVERHEAD_BYTES)) + data(b"x")),
        b"\x08\x01" + delimited(3, data(b"x") + delimited(3, bytes(MAX_OVERHEAD_BYTES))),
    ):
        with pytest.raises(MessageError, match="without the data"):
            split_request_frame(frame)
    long_id = join_begin(1, Begin(request, request_id="x" * 200_000))
    for frame in long_id, UNKNOWN + long_id:
        _, found = split_request_frame(frame)
        assert isinstance(found, Begin)
        assert found.request_id == "x" * 128
    for frame in (chunk := join_chunk(1, Chunk(0, 0, bytes(MIB)))), UNKNOWN + chunk:
        _, found = split_request_frame(frame)
        assert isinstance(found, Chunk)
        assert len(found.data) == MIB


def test_the_frame_of_a_program_may_have_more_besides_data() -> None:
    """As much as a program itself, which is checked where its steps are read."""
    long_id = Begin(b"", request_id="x" * (MAX_OVERHEAD_BYTES + 1), program=True)
    too_long = Begin(b"", request_id="x" * (MAX_PROGRAM_OVERHEAD_BYTES + 1), program=True)
    for before in b"", UNKNOWN:
        _, found = split_request_frame(before + join_begin(1, long_id))
        assert found == long_id._replace(request_id="x" * 128)
        with pytest.raises(MessageError, match="expected at most 1048576 bytes without the data"):
            split_request_frame(before + join_begin(1, too_long))


@each("last", [join_begin(1, Begin(b"")), join_chunk(1, Chunk(0, 0, b"x"))])
def test_a_program_lends_its_room_to_no_other_frame_of_the_message(last: bytes) -> None:
    """Of several the class takes the last one."""
    program = join_begin(1, Begin(b"", program=True))
    junk = delimited(9, bytes(MAX_OVERHEAD_BYTES))
    assert split_request_frame(last + junk + program)[1] == Begin(b"", program=True)
    with pytest.raises(MessageError, match="expected at most 262144 bytes without the data"):
        split_request_frame(program + junk + last)


@given(requests)
def test_the_data_that_is_counted_is_that_of_the_class(message: bytes) -> None:
    assume(not LONG_NUMBER.search(message))
    try:
        counted = data_bytes_in(message, REQUEST, MAX_NESTED_FIELDS)
    except Malformed:
        with pytest.raises(DecodeError):
            pb.ExecuteRequest.FromString(message)
        return
    with suppress(DecodeError):  # of no message nothing is counted
        held = sum(len(each.data) for each in pb.ExecuteRequest.FromString(message).storage)
        assert counted >= held  # of a field that comes twice the class keeps the last
        assert data_bytes_in(begin(message), FRAME, MAX_NESTED_FIELDS) == counted


def test_groups_are_as_deep_as_protobuf_has_them_and_no_deeper() -> None:
    data_bytes_in(GROUP * MAX_DEPTH + END * MAX_DEPTH, REQUEST, MAX_FIELDS)
    with pytest.raises(Malformed):
        data_bytes_in(GROUP * (MAX_DEPTH + 1) + END * (MAX_DEPTH + 1), REQUEST, MAX_FIELDS)
    with pytest.raises(Malformed):
        data_bytes_in(GROUP + tagged(10, 4, b""), REQUEST, MAX_FIELDS)  # another one's end


def data(content: bytes) -> bytes:
    return delimited(15, content)
