"""Messages of any fields in any order, and what npucall and the generated classes find in them."""

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from hypothesis import assume
from hypothesis import strategies as st

from npucall.errors import MessageError
from npucall.exchange import Begin, Chunk, Error, ReplyFrame, Resolved
from npucall.limits import DIGEST_BYTES, HANDLE_BYTES
from npucall.places import Digest, HandlePart, RegionPart, StepOutput
from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall.wire.frames import split_request_frame, split_response_frame
from npucall.wire.messages import split_request, split_response
from npucall.wire.places import ReceivedPlace
from npucall.wire.stream_messages import request_frames, response_frames

Bytes = st.SearchStrategy[bytes]
Verdict = tuple[Any, ...] | None
"""What a message holds, or None for one that is refused."""


class Kind(NamedTuple):
    """Messages of a kind, and who reads them."""

    made: Bytes
    ours: Callable[[bytes], Verdict]
    of_class: Callable[[bytes], Verdict]


# Versions of the class differ about two things, in which we are as strict as the strictest: lengths
# written in more than the 5 bytes that 32 bits need, and field number 0 inside an unknown group.
LONG_NUMBER = re.compile(rb"[\x80-\xff]{5}", re.DOTALL)


def agree(kind: Kind, message: bytes) -> None:
    """Asserts that both find the same, or that both refuse the message."""
    assume(not LONG_NUMBER.search(message))
    assert _verdict(kind.ours, message) == _verdict(kind.of_class, message)


def _verdict(read: Callable[[bytes], Verdict], message: bytes) -> Verdict:
    try:
        return read(message)
    except (MessageError, DecodeError) as error:
        assume("field number 0" not in str(error))
        return None


# Bytes of fields.


def number(value: int) -> bytes:
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + number(high) if high else bytes([low])


def tagged(field: int, wire_type: int, content: bytes) -> bytes:
    return number(field << 3 | wire_type) + content


def delimited(field: int, content: bytes) -> bytes:
    return tagged(field, 2, number(len(content)) + content)


def _fields_of(numbers: st.SearchStrategy[int]) -> Bytes:
    """A field of any wire type but the group."""
    return st.one_of(
        st.builds(lambda n, v: tagged(n, 0, number(v)), numbers, st.integers(0, 2**64 - 1)),
        st.builds(lambda n, v: tagged(n, 1, v), numbers, st.binary(min_size=8, max_size=8)),
        st.builds(lambda n, v: tagged(n, 5, v), numbers, st.binary(min_size=4, max_size=4)),
        st.builds(delimited, numbers, st.binary(max_size=8)),
    )


def _in_group(inside: Bytes) -> Bytes:
    return st.builds(
        lambda n, content: tagged(n, 3, b"".join(content)) + tagged(n, 4, b""),
        st.integers(1, 20),
        st.lists(inside, max_size=3),
    )


def _field(at: int, content: Bytes) -> Bytes:
    return content.map(lambda data: delimited(at, data))


def _number(at: int) -> Bytes:
    sizes = st.sampled_from([0, 1, 127, 128, 2**32 - 1, 2**32, 2**64 - 1])
    return sizes.map(lambda value: tagged(at, 0, number(value)))


def _joined(*parts: Bytes) -> Bytes:
    return st.tuples(*parts).map(b"".join)


def _several(of: Bytes, most: int = 3) -> Bytes:
    return st.lists(of, max_size=most).map(b"".join)


def _maybe(*parts: Bytes) -> Bytes:
    """Each of them, or nothing in its place."""
    return _joined(*(st.one_of(st.just(b""), part) for part in parts))


def _of_class(message: Any, **fields: Any) -> Bytes:
    return st.builds(
        lambda given: message(**given).SerializeToString(),
        st.fixed_dictionaries({}, optional=fields),
    )


# ExecuteRequest and ExecuteResponse.

anything = st.recursive(_fields_of(st.sampled_from([1, 2, 3, 5, 15, 2**29 - 1])), _in_group)
call_parts = _of_class(pb.Call, operator=st.text(max_size=3), variant=st.text())
_regions = _of_class(tensor_pb2.Region, id=st.binary(max_size=3), length=st.integers(0, 9))
_handles = _of_class(
    tensor_pb2.HandlePart, id=st.sampled_from([bytes(16), bytes(15)]), length=st.integers(0, 9)
)
_results = _of_class(tensor_pb2.StepOutput, step=st.integers(0, 300), output=st.text(max_size=3))
_digests = st.sampled_from([bytes(32), bytes(31)])
_small, _blobs = st.binary(max_size=8), st.binary(max_size=20)
_storages = _several(
    st.one_of(
        *map(_field, (15, 1, 2, 3, 4, 5), (_small, _small, _regions, _handles, _digests, _results)),
        anything,
    )
)
_output_places = st.one_of(
    _field(2, _regions),
    st.sampled_from([delimited(3, bytes(16)), delimited(3, b"short"), b"\x20\x01", b""]),
)
_names = _field(1, st.text(max_size=2).map(str.encode))
requests = _several(
    st.one_of(
        _field(1, call_parts),
        _field(2, _storages),
        _field(3, _joined(_names, _output_places)),
        anything,
    ),
    most=5,
)
_responses = requests.map(lambda request: request.replace(b"\x12", b"\x1a"))
"""Storage is field 3 there."""


def _request(message: bytes) -> Verdict:
    split = split_request(message)
    places = {name: tuple(place) for name, place in split.output_places.items()}
    return pb.Call.FromString(split.call), list(map(_seen, split.storage)), places


def _request_of_class(message: bytes) -> Verdict:
    """None also where we refuse and the class does not."""
    parsed = pb.ExecuteRequest.FromString(message)
    places = {p.output: _output_place(p) for p in parsed.output_places}
    if None in places.values() or len(places) < len(parsed.output_places):
        return None
    return _well_made(parsed.storage) and (
        parsed.call,
        list(map(_place, parsed.storage)),
        places,
    )


def _response(message: bytes) -> Verdict:
    reply, timings, storage = split_response(message)
    return pb.Reply.FromString(reply), pb.Timings.FromString(timings), list(map(_seen, storage))


def _response_of_class(message: bytes) -> Verdict:
    parsed = pb.ExecuteResponse.FromString(message)
    return _well_made(parsed.storage) and (
        parsed.reply,
        parsed.timings,
        list(map(_place, parsed.storage)),
    )


def _seen(place: ReceivedPlace) -> object:
    return bytes(place) if isinstance(place, memoryview) else place


def _place(storage: tensor_pb2.Storage) -> object:
    kind = storage.WhichOneof("place")
    if kind is None or kind == "data":
        return None if kind is None else storage.data
    if kind == "digest":
        return Digest(storage.digest)
    if kind == "result":
        return StepOutput(storage.result.step, storage.result.output)
    found = _fields(getattr(storage, kind))
    return RegionPart(*found) if kind == "region" else HandlePart(*found)


def _well_made(storages: Iterable[tensor_pb2.Storage]) -> Any:
    """True where ids and digests have their lengths; otherwise the verdict None."""
    lengths = {"handle": HANDLE_BYTES, "digest": DIGEST_BYTES}
    for storage in storages:
        kind = storage.WhichOneof("place")
        if kind == "handle" and len(storage.handle.id) != lengths[kind]:
            return None
        if kind == "digest" and len(storage.digest) != lengths[kind]:
            return None
    return True


def _output_place(place: pb.OutputPlace) -> tuple[object, ...] | None:
    """None where it is not one place."""
    if place.HasField("region") + bool(place.keep) + place.discard != 1:
        return None
    if place.HasField("region"):
        return _fields(place.region)
    if place.keep:
        return (place.keep,) if len(place.keep) == HANDLE_BYTES else None
    return ()


def _fields(part: Any) -> tuple[bytes, int, int]:
    return part.id, part.offset, part.length


# Frames, several in a message.

_ids = st.one_of(st.text(max_size=4).map(str.encode), _blobs)
_begins = _maybe(_field(1, requests), _number(2), _number(3), _field(4, _ids), _number(5), anything)
_programs = _maybe(_field(1, _several(_field(1, requests))), _number(3), _field(4, _ids), anything)
_chunks = _maybe(_number(1), _number(2), _field(3, _blobs), _field(15, _blobs), anything)


def _messages_of(*opening: Bytes) -> Bytes:
    """Mostly as they should be; sometimes with frames in frames, or with anything between."""
    rest = (_chunks, st.one_of(st.just(b""), anything), st.one_of(call_parts, _blobs))
    frame = st.one_of(*opening, *map(_field, (3, 4, 5), rest))
    odd = _several(st.one_of(frame, _number(1), anything), most=4)
    frames = st.one_of(_joined(_maybe(_number(1)), frame), odd)
    parts = _joined(frames, _several(_field(15, frames)))
    nested = _joined(frames, _field(15, parts))
    return st.one_of(frames, parts, parts, nested, _several(st.one_of(parts, nested, anything)))


def _serialised(message: Any) -> bytes:
    written: bytes = message.SerializeToString(deterministic=True)
    return written


def _request_frame(message: bytes) -> Verdict:
    call_id, frame = split_request_frame(message)
    if isinstance(frame, Begin) and frame.program:
        steps = pb.ExecuteProgramRequest.FromString(frame.request)
        return call_id, "program", _serialised(steps), *frame[1:]
    if isinstance(frame, Begin):
        return (call_id, "begin", *(_request(frame.request) or ()), *frame[1:])
    if isinstance(frame, Chunk):
        return call_id, "chunk", frame.storage, frame.offset, bytes(frame.data)
    return call_id, type(frame).__name__.lower()


def _request_frame_of_class(read: pb.ExecuteStreamRequest) -> Verdict:
    kind = read.WhichOneof("frame")
    if kind == "begin":
        begin = read.begin
        request = _request_of_class(begin.request.SerializeToString())
        rest = (begin.chunked, begin.timeout_ns, begin.request_id, False, begin.early_outputs)
        return request and (read.call_id, "begin", *request, *rest)
    if kind == "program":
        begun = read.program
        rest = (False, begun.timeout_ns, begun.request_id, True, False)
        return read.call_id, "program", _serialised(begun.request), *rest
    if kind == "chunk":
        return read.call_id, "chunk", read.chunk.storage, read.chunk.offset, read.chunk.data
    return kind and (read.call_id, kind)


def _response_frame(message: bytes) -> Verdict:
    call_id, frame = split_response_frame(message)
    if isinstance(frame, ReplyFrame) and frame.program:
        steps = pb.ExecuteProgramResponse.FromString(frame.response)
        return call_id, "program_reply", _serialised(steps)
    if isinstance(frame, ReplyFrame):
        return (call_id, "reply", *(_response(frame.response) or ()))
    if isinstance(frame, Chunk):
        return call_id, "chunk", frame.storage, frame.offset, bytes(frame.data)
    if isinstance(frame, Resolved):
        return call_id, "resolved", _serialised(pb.Reply.FromString(frame.reply))
    return (call_id, "error", frame.status) if isinstance(frame, Error) else (call_id, "end")


def _response_frame_of_class(read: pb.ExecuteStreamResponse) -> Verdict:
    kind = read.WhichOneof("frame")
    if kind == "reply":
        response = _response_of_class(read.reply.SerializeToString())
        return response and (read.call_id, "reply", *response)
    if kind == "chunk":
        return read.call_id, "chunk", read.chunk.storage, read.chunk.offset, read.chunk.data
    if kind in ("program_reply", "resolved"):
        return read.call_id, kind, _serialised(getattr(read, kind))
    return kind and ((read.call_id, kind, read.error) if kind == "error" else (read.call_id, kind))


def _all_of_class(message: bytes, kind: Any, read: Callable[[Any], Verdict]) -> Verdict:
    """What all frames hold, or None where we refuse one of them."""
    parsed = kind.FromString(message)
    frames = (parsed, *parsed.more)
    found = [read(frame) for frame in frames]
    refused = None in found or any(frame.more for frame in parsed.more)
    return None if refused else tuple(found)


KINDS = {
    "request": Kind(requests, _request, _request_of_class),
    "response": Kind(_responses, _response, _response_of_class),
    "frames": Kind(
        _messages_of(_field(2, _begins), _field(7, _programs)),
        lambda message: tuple(map(_request_frame, request_frames(message))),
        lambda message: _all_of_class(message, pb.ExecuteStreamRequest, _request_frame_of_class),
    ),
    "answers": Kind(
        _messages_of(
            _field(2, _responses),
            _field(6, _several(_field(1, _responses))),
            _field(7, st.one_of(call_parts, _blobs)),
        ),
        lambda message: tuple(map(_response_frame, response_frames(message))),
        lambda message: _all_of_class(message, pb.ExecuteStreamResponse, _response_frame_of_class),
    ),
}
