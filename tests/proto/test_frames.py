"""Frames of ExecuteStream <-> bytes: what is written, what is read, without copies."""

from __future__ import annotations

from typing import Any

import pytest

from npucall.errors import MessageError
from npucall.exchange import Begin, Cancel, Chunk, End, Error, ReplyFrame, Resolved
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.frames import (
    join_begin,
    join_cancel,
    join_chunk,
    join_end,
    join_error,
    join_reply,
    join_resolved,
    split_request_frame,
    split_response_frame,
)

REQUEST = pb.ExecuteRequest(call=pb.Call(operator="aclnnX")).SerializeToString()
RESPONSE = pb.ExecuteResponse(reply=pb.Reply(variant="builtin")).SerializeToString()
PROGRAM = pb.ExecuteProgramRequest(
    steps=[pb.ExecuteRequest(call=pb.Call(operator=name)) for name in ("aclnnX", "aclnnY")]
).SerializeToString()
PROGRAM_RESPONSE = pb.ExecuteProgramResponse(
    steps=[pb.ExecuteResponse(reply=pb.Reply(variant="builtin"))]
).SerializeToString()
LARGEST = 16 * 2**20


def test_a_begin_is_what_the_class_reads() -> None:
    frame = join_begin(300, Begin(REQUEST, True, 5_000_000_000, "mine"))
    read = pb.ExecuteStreamRequest.FromString(frame)
    assert (read.call_id, read.WhichOneof("frame")) == (300, "begin")
    assert read.begin.request.call.operator == "aclnnX"
    assert (read.begin.chunked, read.begin.timeout_ns) == (True, 5_000_000_000)
    assert read.begin.request_id == "mine"


def test_a_program_is_what_the_class_reads() -> None:
    begin = Begin(PROGRAM, timeout_ns=5_000_000_000, request_id="mine", program=True)
    read = pb.ExecuteStreamRequest.FromString(join_begin(300, begin))
    assert (read.call_id, read.WhichOneof("frame")) == (300, "program")
    assert [step.call.operator for step in read.program.request.steps] == ["aclnnX", "aclnnY"]
    assert (read.program.timeout_ns, read.program.request_id) == (5_000_000_000, "mine")


def test_what_a_begin_does_not_say_is_what_the_class_has_for_it() -> None:
    read = pb.ExecuteStreamRequest.FromString(join_begin(0, Begin(REQUEST)))
    assert (read.begin.chunked, read.begin.timeout_ns, read.begin.request_id) == (False, 0, "")


@pytest.mark.parametrize("message", [pb.ExecuteStreamRequest, pb.ExecuteStreamResponse])
def test_a_chunk_is_what_the_class_reads_in_both_directions(message: Any) -> None:
    read = message.FromString(join_chunk(2**64 - 1, Chunk(3, 2**40, b"data")))
    assert (read.call_id, read.WhichOneof("frame")) == (2**64 - 1, "chunk")
    assert (read.chunk.storage, read.chunk.offset, read.chunk.data) == (3, 2**40, b"data")


@pytest.mark.parametrize("message", [pb.ExecuteStreamRequest, pb.ExecuteStreamResponse])
def test_an_end_is_what_the_class_reads_in_both_directions(message: Any) -> None:
    read = message.FromString(join_end(7))
    assert (read.call_id, read.WhichOneof("frame")) == (7, "end")


def test_a_cancel_is_what_the_class_reads() -> None:
    read = pb.ExecuteStreamRequest.FromString(join_cancel(7))
    assert (read.call_id, read.WhichOneof("frame")) == (7, "cancel")


def test_what_a_call_resolved_to_is_what_the_class_reads_and_writes() -> None:
    reply = pb.Reply(variant="builtin")
    read = pb.ExecuteStreamResponse.FromString(join_resolved(7, reply.SerializeToString()))
    assert (read.call_id, read.WhichOneof("frame"), read.resolved) == (7, "resolved", reply)
    written = pb.ExecuteStreamResponse(resolved=reply, call_id=7).SerializeToString()
    assert split_response_frame(written) == (7, Resolved(reply.SerializeToString()))
    odd = pb.ExecuteStreamResponse(resolved=reply).SerializeToString() + b"\x08\x07"
    assert split_response_frame(odd) == (7, Resolved(reply.SerializeToString()))


@pytest.mark.parametrize("early", [True, False])
def test_a_begin_says_whether_outputs_may_come_early(early: bool) -> None:
    begin = Begin(REQUEST, True, 5, "mine", early_outputs=early)
    frame = join_begin(300, begin)
    assert pb.ExecuteStreamRequest.FromString(frame).begin.early_outputs is early
    assert split_request_frame(frame) == (300, begin)
    odd = frame + b"\x08\x07"
    assert split_request_frame(odd) == (7, begin)


def test_a_reply_is_what_the_class_reads() -> None:
    read = pb.ExecuteStreamResponse.FromString(join_reply(7, RESPONSE))
    assert (read.call_id, read.reply.reply.variant) == (7, "builtin")


def test_a_reply_to_a_program_is_what_the_class_reads() -> None:
    read = pb.ExecuteStreamResponse.FromString(join_reply(7, PROGRAM_RESPONSE, program=True))
    assert (read.call_id, read.WhichOneof("frame")) == (7, "program_reply")
    assert read.program_reply.steps[0].reply.variant == "builtin"


def test_an_error_is_what_the_class_reads() -> None:
    read = pb.ExecuteStreamResponse.FromString(join_error(7, b"status"))
    assert (read.call_id, read.WhichOneof("frame"), read.error) == (7, "error", b"status")


@pytest.mark.parametrize("call_id", [0, 1, 127, 128, 2**64 - 1])
def test_request_frames_come_back_as_they_were(call_id: int) -> None:
    begin, chunk = Begin(REQUEST, True, 9, "né"), Chunk(1, 2, b"xy")
    program = Begin(PROGRAM, timeout_ns=9, request_id="né", program=True)
    assert split_request_frame(join_begin(call_id, begin)) == (call_id, begin)
    assert split_request_frame(join_begin(call_id, program)) == (call_id, program)
    assert split_request_frame(join_chunk(call_id, chunk)) == (call_id, chunk)
    assert split_request_frame(join_end(call_id)) == (call_id, End())
    assert split_request_frame(join_cancel(call_id)) == (call_id, Cancel())


@pytest.mark.parametrize("call_id", [0, 1, 127, 128, 2**64 - 1])
def test_response_frames_come_back_as_they_were(call_id: int) -> None:
    chunk = Chunk(1, 2, b"xy")
    assert split_response_frame(join_reply(call_id, RESPONSE)) == (call_id, ReplyFrame(RESPONSE))
    program = join_reply(call_id, PROGRAM_RESPONSE, program=True)
    assert split_response_frame(program) == (call_id, ReplyFrame(PROGRAM_RESPONSE, program=True))
    assert split_response_frame(join_chunk(call_id, chunk)) == (call_id, chunk)
    assert split_response_frame(join_end(call_id)) == (call_id, End())
    assert split_response_frame(join_error(call_id, b"x")) == (call_id, Error(b"x"))


def test_data_is_a_view_of_what_was_received() -> None:
    frame = join_chunk(1, Chunk(0, 0, bytes(1000)))
    _, chunk = split_request_frame(frame)
    assert isinstance(chunk, Chunk)
    assert isinstance(chunk.data, memoryview)
    assert chunk.data.obj is frame


@pytest.mark.parametrize("size", [1, 100, 127, 128, 16_300, 16_383, 2**21])
@pytest.mark.parametrize("call_id", [0, 127, 2**63])
@pytest.mark.parametrize("offset", [0, 2**21])
def test_data_stands_at_a_multiple_of_16(size: int, call_id: int, offset: int) -> None:
    frame = join_chunk(call_id, Chunk(1, offset, b"x" * size))
    assert (len(frame) - size) % 16 == 0
    assert pb.ExecuteStreamRequest.FromString(frame).chunk.data == b"x" * size


def test_data_that_a_generated_class_wrote_is_a_view_too() -> None:
    """With padding, and without the fields that are zero."""
    chunk = pb.Chunk(padding=b"\0" * 9, data=b"data")
    frame = pb.ExecuteStreamRequest(chunk=chunk).SerializeToString()
    call_id, read = split_request_frame(frame)
    assert (call_id, read) == (0, Chunk(0, 0, b"data"))
    assert isinstance(read, Chunk)
    assert isinstance(read.data, memoryview)
    assert read.data.obj is frame


def test_the_largest_chunk_is_read() -> None:
    _, chunk = split_request_frame(join_chunk(1, Chunk(0, 0, bytes(LARGEST))))
    assert isinstance(chunk, Chunk)
    assert len(chunk.data) == LARGEST


@pytest.mark.parametrize("split", [split_request_frame, split_response_frame])
def test_a_larger_chunk_is_refused(split: Any) -> None:
    with pytest.raises(MessageError, match="at most 16777216 bytes, found 16777217"):
        split(join_chunk(1, Chunk(0, 0, bytes(LARGEST + 1))))


@pytest.mark.parametrize("split", [split_request_frame, split_response_frame])
@pytest.mark.parametrize("message", [b"", b"\x08\x05"])
def test_a_message_without_a_frame_is_refused(split: Any, message: bytes) -> None:
    with pytest.raises(MessageError, match="found none"):
        split(message)


@pytest.mark.parametrize("split", [split_request_frame, split_response_frame])
def test_what_is_no_message_is_refused(split: Any) -> None:
    with pytest.raises(MessageError, match="expected a serialised ExecuteStream"):
        split(b"\x08\x01\x1a\x7fcut")
