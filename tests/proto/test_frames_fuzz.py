"""npucall.wire.frames on any bytes: the verdict and the values of the generated classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npucall.errors import MessageError
from npucall.exchange import Begin, Chunk, Error, ReplyFrame, Resolved
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.frames import split_request_frame, split_response_frame

from .test_framing_fuzz import (
    LONG_NUMBER,
    anything,
    call_parts,
    delimited,
    messages,
    mutated,
    number,
    request_of,
    request_of_class,
    response_of,
    response_of_class,
    tagged,
)

if TYPE_CHECKING:
    from collections.abc import Callable

Verdict = tuple[Any, ...] | None
"""What a frame holds, or None for one that is refused."""


def numbered(field: int, values: st.SearchStrategy[int]) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: tagged(field, 0, number(value)))


def maybe(part: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(st.just(b""), part)


def joined(*parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.tuples(*parts).map(b"".join)


sizes = st.sampled_from([0, 1, 127, 128, 2**32 - 1, 2**32, 2**64 - 1])
blobs = st.binary(max_size=20)
begins = joined(
    maybe(messages.map(lambda request: delimited(1, request))),
    maybe(numbered(2, sizes)),
    maybe(numbered(3, sizes)),
    maybe(st.one_of(st.text(max_size=4).map(str.encode), blobs).map(lambda s: delimited(4, s))),
    maybe(numbered(5, sizes)),
    maybe(anything),
)
programs = joined(
    maybe(st.lists(messages, max_size=3).map(lambda steps: delimited(1, program_of(*steps)))),
    maybe(numbered(3, sizes)),
    maybe(st.one_of(st.text(max_size=4).map(str.encode), blobs).map(lambda s: delimited(4, s))),
    maybe(anything),
)
chunks = joined(
    maybe(numbered(1, sizes)),
    maybe(numbered(2, sizes)),
    maybe(blobs.map(lambda padding: delimited(3, padding))),
    maybe(blobs.map(lambda data: delimited(15, data))),
    maybe(anything),
)


def program_of(*steps: bytes) -> bytes:
    return b"".join(delimited(1, step) for step in steps)


def frames_of(
    opening: st.SearchStrategy[bytes], program: st.SearchStrategy[bytes]
) -> st.SearchStrategy[bytes]:
    frame = st.one_of(
        opening.map(lambda content: delimited(2, content)),
        chunks.map(lambda content: delimited(3, content)),
        st.one_of(st.just(b""), anything).map(lambda content: delimited(4, content)),
        st.one_of(call_parts, blobs).map(lambda content: delimited(5, content)),
        program,
    )
    ordinary = joined(maybe(numbered(1, sizes)), frame)
    odd = st.lists(st.one_of(frame, numbered(1, sizes), anything), max_size=4).map(b"".join)
    return st.one_of(ordinary, odd)


responses = messages.map(lambda request: request.replace(b"\x12", b"\x1a"))
"""Storage is field 3 there."""
request_frames = frames_of(begins, programs.map(lambda content: delimited(7, content)))
response_frames = frames_of(
    responses,
    st.one_of(
        st.lists(responses, max_size=3).map(lambda steps: delimited(6, program_of(*steps))),
        st.one_of(call_parts, blobs).map(lambda content: delimited(7, content)),
    ),
)


def serialised(message: Any) -> bytes:
    written: bytes = message.SerializeToString(deterministic=True)
    return written


def ours(message: bytes) -> Verdict:
    """A begin's request is read as far as the class reads it, to compare."""
    try:
        call_id, frame = split_request_frame(message)
        if isinstance(frame, Begin) and frame.program:
            steps = pb.ExecuteProgramRequest.FromString(frame.request)
            return call_id, "program", serialised(steps), *frame[1:]
        if isinstance(frame, Begin):
            return (call_id, "begin", *request_of(frame.request), *frame[1:])
        if isinstance(frame, Chunk):
            return call_id, "chunk", frame.storage, frame.offset, bytes(frame.data)
    except (MessageError, DecodeError) as error:
        assume("field number 0" not in str(error))
        return None
    return call_id, type(frame).__name__.lower()


def of_the_class(message: bytes) -> Verdict:
    try:
        read = pb.ExecuteStreamRequest.FromString(message)
    except DecodeError:
        return None
    kind = read.WhichOneof("frame")
    if kind is None or read.more:
        return None
    if kind == "begin":
        begin = read.begin
        request = request_of_class(begin.request)
        rest = (begin.chunked, begin.timeout_ns, begin.request_id, False, begin.early_outputs)
        return request and (read.call_id, "begin", *request, *rest)
    if kind == "program":
        begun = read.program
        rest = (False, begun.timeout_ns, begun.request_id, True, False)
        return (read.call_id, "program", serialised(begun.request), *rest)
    if kind == "chunk":
        return read.call_id, "chunk", read.chunk.storage, read.chunk.offset, read.chunk.data
    return read.call_id, kind


def ours_of_response(message: bytes) -> Verdict:
    try:
        call_id, frame = split_response_frame(message)
        if isinstance(frame, ReplyFrame) and frame.program:
            steps = pb.ExecuteProgramResponse.FromString(frame.response)
            return call_id, "program_reply", serialised(steps)
        if isinstance(frame, ReplyFrame):
            return (call_id, "reply", *response_of(frame.response))
        if isinstance(frame, Chunk):
            return call_id, "chunk", frame.storage, frame.offset, bytes(frame.data)
        if isinstance(frame, Resolved):
            return call_id, "resolved", serialised(pb.Reply.FromString(frame.reply))
    except (MessageError, DecodeError) as error:
        assume("field number 0" not in str(error))
        return None
    return (call_id, "error", frame.status) if isinstance(frame, Error) else (call_id, "end")


def class_of_response(message: bytes) -> Verdict:
    try:
        read = pb.ExecuteStreamResponse.FromString(message)
    except DecodeError:
        return None
    kind = read.WhichOneof("frame")
    if kind is None or read.more:
        return None
    if kind == "reply":
        response = response_of_class(read.reply)
        return response and (read.call_id, "reply", *response)
    if kind == "program_reply":
        return read.call_id, "program_reply", serialised(read.program_reply)
    if kind == "chunk":
        return read.call_id, "chunk", read.chunk.storage, read.chunk.offset, read.chunk.data
    content = {"resolved": (serialised(read.resolved),), "error": (read.error,), "end": ()}
    return read.call_id, kind, *content[kind]


def check(
    message: bytes, mine: Callable[[bytes], Verdict], of_class: Callable[[bytes], Verdict]
) -> None:
    assume(not LONG_NUMBER.search(message))
    assert mine(message) == of_class(message)


@given(request_frames)
@settings(max_examples=400)
def test_a_request_frame_means_what_it_means_to_the_class(message: bytes) -> None:
    check(message, ours, of_the_class)


@pytest.mark.more
@given(response_frames)
@settings(max_examples=400)
def test_a_response_frame_means_what_it_means_to_the_class(message: bytes) -> None:
    check(message, ours_of_response, class_of_response)


@pytest.mark.more
@given(request_frames, st.data())
@settings(max_examples=400)
def test_a_damaged_request_frame_gets_the_verdict_of_the_class(
    message: bytes, data: st.DataObject
) -> None:
    check(mutated(mutated(message, data.draw), data.draw), ours, of_the_class)


@pytest.mark.more
@given(response_frames, st.data())
@settings(max_examples=400)
def test_a_damaged_response_frame_gets_the_verdict_of_the_class(
    message: bytes, data: st.DataObject
) -> None:
    check(mutated(mutated(message, data.draw), data.draw), ours_of_response, class_of_response)


@given(st.binary(max_size=40))
@settings(max_examples=300)
def test_any_bytes_get_the_verdict_of_the_class(message: bytes) -> None:
    check(message, ours, of_the_class)
