"""Messages of streams <-> their frames: by hand and by the class, limits, any bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npucall.errors import MessageError
from npucall.exchange import Begin, Cancel, Chunk, Credential, End, Error, ReplyFrame
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
    split_request_frame,
    split_response_frame,
)
from npucall.wire.stream_messages import join_frames, request_frames, response_frames

from .test_frames_fuzz import (
    Verdict,
    class_of_response,
    of_the_class,
    ours,
    ours_of_response,
)
from .test_frames_fuzz import (
    request_frames as any_request_frames,
)
from .test_frames_fuzz import (
    response_frames as any_response_frames,
)
from .test_framing_fuzz import LONG_NUMBER, anything, delimited, mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REQUEST = pb.ExecuteRequest(call=pb.Call(operator="aclnnX")).SerializeToString()
BEGIN, CHUNK = Begin(REQUEST, request_id="mine"), Chunk(1, 2, b"xy")
SENT = [
    (0, BEGIN),
    (1, Begin(REQUEST, chunked=True)),
    (1, CHUNK),
    (1, End()),
    (300, Begin(b"\n\0", program=True)),
    (0, Credential("Bearer x")),
    (2**64 - 1, Cancel()),
]
SENT_BYTES = [
    join_begin(0, BEGIN),
    join_begin(1, Begin(REQUEST, chunked=True)),
    join_chunk(1, CHUNK),
    join_end(1),
    join_begin(300, Begin(b"\n\0", program=True)),
    join_credential(Credential("Bearer x")),
    join_cancel(2**64 - 1),
]
ANSWERED = [(0, ReplyFrame(b"\n\0")), (1, Error(b"x")), (2, CHUNK), (2, End())]
ANSWERED_BYTES = [
    join_reply(0, b"\n\0"),
    join_error(1, b"x"),
    join_chunk(2, CHUNK),
    join_end(2),
]
UNKNOWN = delimited(9, b"x")


def test_several_frames_are_what_the_class_reads() -> None:
    read = pb.ExecuteStreamRequest.FromString(join_frames(SENT_BYTES))
    kinds = [frame.WhichOneof("frame") for frame in (read, *read.more)]
    assert kinds == ["begin", "begin", "chunk", "end", "program", "credential", "cancel"]
    assert [frame.call_id for frame in (read, *read.more)] == [call_id for call_id, _ in SENT]
    assert not any(frame.more for frame in read.more)


def test_several_answers_are_what_the_class_reads() -> None:
    read = pb.ExecuteStreamResponse.FromString(join_frames(ANSWERED_BYTES))
    kinds = [frame.WhichOneof("frame") for frame in (read, *read.more)]
    assert kinds == ["reply", "error", "chunk", "end"]


@pytest.mark.parametrize("first", range(len(SENT)))
@pytest.mark.parametrize("spelled", [lambda message: message, lambda message: UNKNOWN + message])
def test_frames_come_back_as_they_were(first: int, spelled: Callable[[bytes], bytes]) -> None:
    """By hand, and by the class."""
    message = spelled(join_frames(SENT_BYTES[first:] + SENT_BYTES[:first]))
    found = [split_request_frame(frame) for frame in request_frames(message)]
    assert found == SENT[first:] + SENT[:first]


@pytest.mark.parametrize("first", range(len(ANSWERED)))
@pytest.mark.parametrize("spelled", [lambda message: message, lambda message: UNKNOWN + message])
def test_answers_come_back_as_they_were(first: int, spelled: Callable[[bytes], bytes]) -> None:
    message = spelled(join_frames(ANSWERED_BYTES[first:] + ANSWERED_BYTES[:first]))
    found = [split_response_frame(frame) for frame in response_frames(message)]
    assert found == ANSWERED[first:] + ANSWERED[:first]


@pytest.mark.parametrize("frame", SENT_BYTES)
def test_a_frame_alone_is_its_message_and_is_not_copied(frame: bytes) -> None:
    assert join_frames([frame]) is frame
    (found,) = request_frames(frame)
    assert found is frame


def test_a_message_keeps_as_many_frames_as_it_may_have() -> None:
    frames = [join_end(number) for number in range(FRAMES_PER_MESSAGE)]
    assert list(request_frames(join_frames(frames))) == frames
    assert list(response_frames(UNKNOWN + join_frames(frames)))[1:] == frames[1:]


@pytest.mark.parametrize("split", [request_frames, response_frames])
@pytest.mark.parametrize("before", [b"", UNKNOWN])
def test_more_frames_are_refused(split: Callable[[bytes], Iterable[bytes]], before: bytes) -> None:
    message = before + join_frames([join_end(1)] * (FRAMES_PER_MESSAGE + 1))
    with pytest.raises(MessageError, match="at most 64 frames in one message, found 65"):
        split(message)


@pytest.mark.parametrize("before", [b"", UNKNOWN])
def test_frames_within_frames_are_refused(before: bytes) -> None:
    nested = join_frames([join_end(1), join_frames([join_end(2), join_end(3)])])
    for frames, split in (
        (request_frames, split_request_frame),
        (
            response_frames,
            split_response_frame,
        ),
    ):
        _, second = frames(before + nested)  # type: ignore[operator]
        with pytest.raises(MessageError, match="only in the first frame of a message"):
            split(second)  # type: ignore[operator]


@pytest.mark.parametrize("split", [request_frames, response_frames])
@pytest.mark.parametrize("end", [b"\x7a", b"\x7a\x05cut", b"\x7a\xff", b"\x7b"])
def test_what_is_cut_off_is_refused(split: Callable[[bytes], Iterable[bytes]], end: bytes) -> None:
    with pytest.raises(MessageError, match="expected a serialised ExecuteStream"):
        split(join_end(1) + end)


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


def frames_in(message: bytes, split: Any, read: Callable[[bytes], Verdict]) -> Verdict:
    """What all frames hold, or None where one of them, or the message, is refused."""
    try:
        found = [read(frame) for frame in split(message)]
    except MessageError as error:
        assume("field number 0" not in str(error))
        return None
    return None if None in found else tuple(found)


def frames_of_class(message: bytes, kind: Any, read: Callable[[bytes], Verdict]) -> Verdict:
    try:
        parsed = kind.FromString(message)
    except DecodeError:
        return None
    if any(frame.more for frame in parsed.more):
        return None
    more = [read(frame.SerializeToString()) for frame in parsed.more]
    parsed.ClearField("more")
    found = [read(parsed.SerializeToString()), *more]
    return None if None in found else tuple(found)


def messages_of(frames: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Mostly as they should be; sometimes with frames in frames, or with anything between."""
    more = st.lists(frames.map(lambda frame: delimited(15, frame)), max_size=3).map(b"".join)
    parts = st.tuples(frames, more).map(b"".join)
    nested = st.tuples(frames, parts.map(lambda frame: delimited(15, frame))).map(b"".join)
    mixed = st.lists(st.one_of(parts, nested, anything), max_size=3).map(b"".join)
    return st.one_of(parts, parts, nested, mixed)


def check_request(message: bytes) -> None:
    assume(not LONG_NUMBER.search(message))
    found = frames_in(message, request_frames, ours)
    assert found == frames_of_class(message, pb.ExecuteStreamRequest, of_the_class)


def check_response(message: bytes) -> None:
    assume(not LONG_NUMBER.search(message))
    found = frames_in(message, response_frames, ours_of_response)
    assert found == frames_of_class(message, pb.ExecuteStreamResponse, class_of_response)


@given(messages_of(any_request_frames))
@settings(max_examples=100)
def test_a_request_message_means_what_it_means_to_the_class(message: bytes) -> None:
    check_request(message)


@given(messages_of(any_response_frames))
@settings(max_examples=100)
def test_a_response_message_means_what_it_means_to_the_class(message: bytes) -> None:
    check_response(message)


@pytest.mark.long
@given(messages_of(any_request_frames), messages_of(any_response_frames))
@settings(max_examples=1000)
def test_many_messages_mean_what_they_mean_to_the_class(sent: bytes, answered: bytes) -> None:
    check_request(sent)
    check_response(answered)


@pytest.mark.long
@given(messages_of(any_request_frames), st.data())
@settings(max_examples=400)
def test_a_damaged_request_message_gets_the_verdict_of_the_class(
    message: bytes, data: st.DataObject
) -> None:
    check_request(mutated(mutated(message, data.draw), data.draw))


@pytest.mark.long
@given(messages_of(any_response_frames), st.data())
@settings(max_examples=400)
def test_a_damaged_response_message_gets_the_verdict_of_the_class(
    message: bytes, data: st.DataObject
) -> None:
    check_response(mutated(mutated(message, data.draw), data.draw))
