"""The frames of a large call: what travels in chunks, what has a place, and what answers make."""

from typing import Any

import numpy as np
import pytest
from tests.client.fake_server import MIB, numbers, reply_of
from tests.rows import each

from npucall.dtypes import FLOAT
from npucall.errors import CancelledError, InternalError, TooLargeError
from npucall.exchange import Chunk, End, Error, ReplyFrame, Resolved, ResponseFrame
from npucall.places import Discard, HandlePart, Keep, RegionPart
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import encode_tensor
from npucall.wire.frames import split_request_frame
from npucall.wire.messages import join_response, split_request
from npucall.wire.status import to_status
from npucall_client.calls.answers import decode_reply, unpack
from npucall_client.calls.arguments import BoundCall, Placement
from npucall_client.sending.server_limits import ServerLimits
from npucall_client.sending.transfer import Incoming, outgoing, place_nothing_in_chunks, size_of

LARGE = np.arange(2 * MIB, dtype=np.uint8)
PART = HandlePart(bytes(range(16)), 8, 64)
HANDLE = bytes(range(16, 32))


def call(**storage: Any) -> BoundCall:
    return BoundCall("aclnnAny", b"call", storage)


def test_what_the_server_has_counts_nothing() -> None:
    assert size_of(call(a=PART, b=b"1234")) == 4


def test_chunks_are_those_of_the_storages_without_a_place() -> None:
    bound = call(a=PART, b=LARGE.data)
    bound.kept = {"out": Keep(HANDLE), "other": Discard()}
    frames = [split_request_frame(frame)[1] for frame in outgoing(7, bound, "", MIB)]
    begin: Any = frames[0]
    assert begin.chunked
    request = split_request(begin.request)
    assert request.storage == [PART, None]
    assert request.output_places == bound.kept
    chunks = [frame for frame in frames if isinstance(frame, Chunk)]
    assert [(chunk.storage, chunk.offset) for chunk in chunks] == [(1, 0), (1, MIB)]
    assert b"".join(chunk.data for chunk in chunks) == LARGE.tobytes()
    assert isinstance(frames[-1], End)


def test_a_call_that_is_all_chunks_is_spelled_as_ever() -> None:
    begin: Any = split_request_frame(next(outgoing(7, call(a=LARGE.data), "", MIB)))[1]
    assert split_request(begin.request).storage == []


@each("placed", ["handle", "kept"])
def test_an_older_server_cannot_take_handles_beside_chunks(placed: str) -> None:
    bound = call(a=PART, b=LARGE.data) if placed == "handle" else call(b=LARGE.data)
    bound.kept = {"out": Keep(HANDLE)} if placed == "kept" else {}
    with pytest.raises(TooLargeError, match=r"put\(\) the arrays into the session first"):
        place_nothing_in_chunks(bound, MIB)
    place_nothing_in_chunks(call(a=PART, b=b"small"), MIB)


def reply(**outputs: int) -> bytes:
    specs = {name: TensorSpec(FLOAT, (size,)) for name, size in outputs.items()}
    listed = [
        pb.Argument(name=name, stored=True, tensor=encode_tensor(spec))
        for name, spec in specs.items()
    ]
    return pb.ExecuteResponse(reply=pb.Reply(outputs=listed)).SerializeToString()


def test_an_output_that_has_a_place_has_no_chunks_beside_one_that_comes() -> None:
    bound = call()
    bound.kept = {"kept": Keep(HANDLE), "gone": Discard()}
    shared = RegionPart(bytes(16), 64, 8)
    bound.placement = Placement({}, {"shared": shared})
    data = np.arange(4, dtype=np.float32)
    incoming = Incoming(bound)
    assert incoming.take(ReplyFrame(reply(kept=3, comes=4, gone=5, shared=2))) is None
    assert incoming.take(Chunk(1, 0, data.tobytes())) is None
    response = incoming.take(End())
    assert response is not None
    kept, _, gone, there = response.storage
    assert (kept, gone, there) == (HandlePart(HANDLE, 0, 12), None, shared)
    bound.targets["shared"] = np.zeros(2, np.float32)
    outputs = unpack(bound, decode_reply(response.reply), response.storage, {"kept": "remote"})
    assert (outputs["kept"], outputs["shared"] is bound.targets["shared"]) == ("remote", True)
    assert outputs["comes"].tolist() == data.tolist()


@each(
    ("kept", "place"),
    [
        ({}, HandlePart(HANDLE, 0, 16)),
        ({"out": Keep(PART.id)}, HandlePart(HANDLE, 0, 16)),
        ({"out": Keep(HANDLE)}, memoryview(bytes(16))),
        ({"out": Discard()}, memoryview(bytes(16))),
        ({"out": Keep(HANDLE)}, None),
        ({}, None),
    ],
)
def test_an_answer_that_keeps_what_was_not_asked_is_refused(kept: Any, place: Any) -> None:
    bound = call()
    bound.kept = kept
    message = pb.ExecuteResponse.FromString(reply(out=4))
    with pytest.raises(InternalError, match="out"):
        unpack(bound, decode_reply(message.reply.SerializeToString()), [place])


SIZE = 8
SMALL = reply_of(bytes(SIZE), inline=False).reply.SerializeToString()
OTHER = reply_of(bytes(SIZE + 4), inline=False).reply.SerializeToString()
RESOLVED = Resolved(SMALL)
LAST = ReplyFrame(join_response(SMALL, b"", ()))
PARTS = Chunk(0, 0, b"abcd"), Chunk(0, 4, b"efgh")


@each(
    "frames",
    [
        (PARTS[0],),
        (RESOLVED, RESOLVED),
        (RESOLVED, PARTS[1]),
        (RESOLVED, PARTS[0], PARTS[0]),
        (RESOLVED, *PARTS, Chunk(0, 8, b"i")),
        (RESOLVED, Chunk(1, 0, b"abcd")),
        (RESOLVED, *PARTS, End()),
        (RESOLVED, PARTS[0], LAST),
        (RESOLVED, LAST),
        (RESOLVED, *PARTS, ReplyFrame(join_response(OTHER, b"", ()))),
        (RESOLVED, *PARTS, ReplyFrame(join_response(SMALL, b"", (b"abcdefgh",)))),
        (RESOLVED, *PARTS, LAST, PARTS[0]),
        (RESOLVED, *PARTS, LAST, RESOLVED),
        (LAST, RESOLVED),
        (LAST, PARTS[0], RESOLVED),
        (LAST, PARTS[1]),
        (LAST, PARTS[0], PARTS[0]),
        (LAST, *PARTS, Chunk(0, 8, b"i")),
        (LAST, Chunk(1, 0, b"abcd")),
        (LAST, PARTS[0], End()),
        (End(),),
    ],
)
def test_frames_that_make_no_answer_are_an_error(frames: tuple[ResponseFrame, ...]) -> None:
    incoming = Incoming(BoundCall("x"))
    for frame in frames[:-1]:
        incoming.take(frame)
    with pytest.raises(InternalError, match="stream: "):
        incoming.take(frames[-1])


def test_an_error_frame_ends_the_answer_wherever_it_comes() -> None:
    error = Error(to_status(CancelledError("enough")).SerializeToString())
    for before in [(), (RESOLVED,), (RESOLVED, *PARTS)]:
        incoming = Incoming(BoundCall("x"))
        assert [incoming.take(frame) for frame in before] == [None] * len(before)
        with pytest.raises(CancelledError, match="enough"):
            incoming.take(error)


@each(
    ("storage", "kept", "window", "has_stream"),
    [
        ({"a": bytes(999)}, {}, 8, False),
        ({"a": bytes(1000)}, {}, 8, True),
        ({"a": bytes(1000)}, {}, 0, False),
        ({"a": bytes(10), "b": HandlePart(bytes(16), 0, 989)}, {}, 8, False),
        ({"a": bytes(10), "b": HandlePart(bytes(16), 0, 990)}, {}, 8, True),
        ({"b": HandlePart(bytes(16), 0, 1000)}, {"out": Keep(bytes(16))}, 8, False),
    ],
)
def test_a_call_gets_a_stream_for_what_it_sends_or_may_be_answered(
    storage: Any, kept: Any, window: int, has_stream: bool
) -> None:
    home: Any = object()
    call = BoundCall("x", storage=storage, home=home, kept=kept)
    limits = pb.Limits(stream_window=window, max_message_bytes=1 << 20)
    assert ServerLimits(limits, 1000).travels_in_chunks(call) is has_stream


def received_into(sent: Any, target: Any) -> Any:
    """What becomes of a target: the memory in which the answer to a call is received."""
    request = BoundCall("x", storage={"self": sent.reshape(-1).view(np.uint8).data})
    request.targets["grad_input"] = target
    incoming = Incoming(request)
    reply = reply_of(bytes(sent.nbytes), inline=False).reply.SerializeToString()
    assert incoming.take(ReplyFrame(join_response(reply, b"", ()))) is None
    return np.frombuffer(incoming._outputs[0], np.float32)


def test_a_dense_target_is_the_memory_of_the_answer_and_any_other_is_written_at_the_end() -> None:
    """An input too: a stream that breaks in the answer is begun anew with that input."""
    array, dense = numbers(400), np.zeros(100, np.float32)
    assert np.shares_memory(received_into(array, dense), dense)
    gaps, wide = np.zeros(200, np.float32)[::2], np.zeros(100, np.float64)
    for target in gaps, wide, np.zeros((10, 10), np.float32), array:
        assert not np.shares_memory(received_into(array, target), target)
