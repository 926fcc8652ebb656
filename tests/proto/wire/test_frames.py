"""Frames of ExecuteStream, one or several in a message <-> bytes, without copies."""

from typing import Any

import pytest
from tests.proto.any_messages import delimited
from tests.rows import each

from npucall.errors import MessageError
from npucall.exchange import Begin, Cancel, Chunk, Credential, End, Error, ReplyFrame, Resolved
from npucall.limits import FRAMES_PER_MESSAGE, MAX_OVERHEAD_BYTES
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.frames import (
    join_begin,
    join_cancel,
    join_chunk,
    join_credential,
    join_end,
    join_error,
    join_reply,
    join_resolved,
    split_request_frame,
    split_response_frame,
)
from npucall.wire.stream_messages import join_frames, request_frames, response_frames

STEP, ANSWER = pb.ExecuteRequest(call={"operator": "aclnnX"}), pb.ExecuteResponse()  # type: ignore[arg-type]
ANSWER.reply.variant = "builtin"
PROGRAM, ANSWERS = pb.ExecuteProgramRequest(steps=[STEP] * 2), pb.ExecuteProgramResponse()
ANSWERS.steps.append(ANSWER)
REQUEST, RESPONSE, STEPS, ANSWERED, REPLY = (
    message.SerializeToString() for message in (STEP, ANSWER, PROGRAM, ANSWERS, ANSWER.reply)
)
CHUNK, CHUNK_OF_CLASS = Chunk(3, 2**40, b"data"), pb.Chunk(storage=3, offset=2**40, data=b"data")
NAMED: dict[str, Any] = {"timeout_ns": 5_000_000_000, "request_id": "né"}

# Each frame: as we have it, who writes it, and what it is to the class.
SENT: list[tuple[Any, Any, dict[str, Any]]] = [
    (Begin(REQUEST), join_begin, {"begin": pb.Begin(request=STEP)}),
    (
        Begin(REQUEST, True, **NAMED),
        join_begin,
        {"begin": pb.Begin(request=STEP, chunked=True, **NAMED)},
    ),
    (
        Begin(REQUEST, early_outputs=True, request_id="mine"),
        join_begin,
        {"begin": pb.Begin(request=STEP, early_outputs=True, request_id="mine")},
    ),
    (
        Begin(STEPS, program=True, **NAMED),
        join_begin,
        {"program": pb.BeginProgram(request=PROGRAM, **NAMED)},
    ),
    (CHUNK, join_chunk, {"chunk": CHUNK_OF_CLASS}),
    (End(), lambda call_id, _: join_end(call_id), {"end": pb.End()}),
    (Cancel(), lambda call_id, _: join_cancel(call_id), {"cancel": pb.Cancel()}),
]
ANSWERED_WITH: list[tuple[Any, Any, dict[str, Any]]] = [
    (ReplyFrame(RESPONSE), lambda call_id, _: join_reply(call_id, RESPONSE), {"reply": ANSWER}),
    (
        ReplyFrame(ANSWERED, program=True),
        lambda call_id, _: join_reply(call_id, ANSWERED, program=True),
        {"program_reply": ANSWERS},
    ),
    (Resolved(REPLY), lambda call_id, _: join_resolved(call_id, REPLY), {"resolved": ANSWER.reply}),
    (Error(b"status"), lambda call_id, _: join_error(call_id, b"status"), {"error": b"status"}),
    (CHUNK, join_chunk, {"chunk": CHUNK_OF_CLASS}),
    (End(), lambda call_id, _: join_end(call_id), {"end": pb.End()}),
]
FRAMES = [
    *((pb.ExecuteStreamRequest, split_request_frame, *row) for row in SENT),
    *((pb.ExecuteStreamResponse, split_response_frame, *row) for row in ANSWERED_WITH),
]
UNKNOWN = delimited(9, b"x")
"""A field that no message has; in front of a frame, only the class can read what follows."""
both_ways = each("split", [split_request_frame, split_response_frame])


@each(("kind", "split", "frame", "join", "fields"), FRAMES)
@each("call_id", [0, 1, 127, 128, 2**64 - 1])
def test_a_frame_is_the_same_to_us_and_to_the_class(
    kind: Any, split: Any, frame: Any, join: Any, fields: dict[str, Any], call_id: int
) -> None:
    written, of_class = join(call_id, frame), kind(call_id=call_id, **fields)
    read = kind.FromString(written)
    if "chunk" in fields:
        read.chunk.ClearField("padding")
    assert read == of_class
    for message in written, of_class.SerializeToString(), UNKNOWN + written:
        assert split(message) == (call_id, frame)
    assert split(written + b"\x08\x07") == (7, frame)  # the last one counts


def test_a_credential_is_of_no_call() -> None:
    written = join_credential(Credential("Bearer x"))
    credential = pb.Credential(authorization="Bearer x")
    assert pb.ExecuteStreamRequest.FromString(written) == pb.ExecuteStreamRequest(
        credential=credential
    )
    assert split_request_frame(written) == (0, Credential("Bearer x"))


# Written by us, and by the class with padding and without the fields that are zero.
BY_CLASS = pb.ExecuteStreamRequest(chunk=pb.Chunk(padding=b"\0" * 9, data=b"data"))


@each("frame", [join_chunk(0, Chunk(0, 0, b"data")), BY_CLASS.SerializeToString()])
def test_data_is_a_view_of_what_was_received(frame: bytes) -> None:
    call_id, chunk = split_request_frame(frame)
    assert (call_id, chunk) == (0, Chunk(0, 0, b"data"))
    assert isinstance(chunk, Chunk)
    assert isinstance(chunk.data, memoryview)
    assert chunk.data.obj is frame


@each("size", [1, 100, 127, 128, 16_300, 16_383, 2**21])
@each("call_id", [0, 127, 2**63])
@each("offset", [0, 2**21])
def test_data_stands_at_a_multiple_of_16(size: int, call_id: int, offset: int) -> None:
    frame = join_chunk(call_id, Chunk(1, offset, b"x" * size))
    assert (len(frame) - size) % 16 == 0
    assert pb.ExecuteStreamRequest.FromString(frame).chunk.data == b"x" * size


@both_ways
def test_a_chunk_has_16_mib_at_most(split: Any) -> None:
    largest = 16 * 2**20
    _, chunk = split(join_chunk(1, Chunk(0, 0, bytes(largest))))
    assert len(chunk.data) == largest
    with pytest.raises(MessageError, match="at most 16777216 bytes, found 16777217"):
        split(join_chunk(1, Chunk(0, 0, bytes(largest + 1))))


@both_ways
@each(
    ("message", "why"),
    [
        (b"", "found none"),
        (b"\x08\x05", "found none"),
        (b"\x08\x01\x1a\x7fcut", "expected a serialised ExecuteStream"),
    ],
)
def test_what_is_no_frame_is_refused(split: Any, message: bytes, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        split(message)


DIRECTIONS: list[tuple[Any, Any, Any, Any]] = [
    (pb.ExecuteStreamRequest, request_frames, split_request_frame, SENT),
    (pb.ExecuteStreamResponse, response_frames, split_response_frame, ANSWERED_WITH),
]
of_streams = each("frames_of", [request_frames, response_frames])


@each(("kind", "frames_of", "split", "rows"), DIRECTIONS)
def test_frames_of_a_message_are_the_same_to_us_and_to_the_class(
    kind: Any, frames_of: Any, split: Any, rows: Any
) -> None:
    """Whichever is the first."""
    for first in range(len(rows)):
        turned = [*enumerate([*rows[first:], *rows[:first]])]
        message = join_frames([join(number, frame) for number, (frame, join, _) in turned])
        read = kind.FromString(message)
        kinds = [each.WhichOneof("frame") for each in (read, *read.more)]
        assert kinds == [*(name for _, (_, _, fields) in turned for name in fields)]
        assert not any(each.more for each in read.more)
        expected = [(number, frame) for number, (frame, _, _) in turned]
        for spelled in message, UNKNOWN + message:
            assert [split(each) for each in frames_of(spelled)] == expected


@each(("frame", "join", "fields"), SENT)
def test_a_frame_alone_is_its_message_and_is_not_copied(frame: Any, join: Any, fields: Any) -> None:
    written = join(7, frame)
    assert join_frames([written]) is written
    (found,) = request_frames(written)
    assert found is written


@of_streams
@each("before", [b"", UNKNOWN])
def test_a_message_has_64_frames_at_most(frames_of: Any, before: bytes) -> None:
    frames = [join_end(number) for number in range(FRAMES_PER_MESSAGE)]
    assert list(frames_of(before + join_frames(frames)))[1:] == frames[1:]
    with pytest.raises(MessageError, match="at most 64 frames in one message, found 65"):
        frames_of(before + join_frames([*frames, join_end(64)]))


@of_streams
@each("end", [b"\x7a", b"\x7a\x05cut", b"\x7a\xff", b"\x7b"])
def test_what_is_cut_off_is_refused(frames_of: Any, end: bytes) -> None:
    with pytest.raises(MessageError, match="expected a serialised ExecuteStream"):
        frames_of(join_end(1) + end)


def test_a_frame_has_its_own_limits_beside_others_too() -> None:
    long = join_begin(1, Begin(REQUEST, request_id="x" * 200_000))
    too_long = join_begin(2, Begin(REQUEST, request_id="x" * MAX_OVERHEAD_BYTES))
    frames = list(request_frames(join_frames([long, long, too_long])))
    assert [split_request_frame(frame)[0] for frame in frames[:2]] == [1, 1]
    with pytest.raises(MessageError, match="at most 262144 bytes without the data"):
        split_request_frame(frames[2])


def test_in_another_spelling_the_whole_message_has_the_limits_of_a_frame() -> None:
    long = join_begin(1, Begin(REQUEST, request_id="x" * 200_000))
    with pytest.raises(MessageError, match="at most 262144 bytes without the data"):
        request_frames(UNKNOWN + join_frames([long, long]))
