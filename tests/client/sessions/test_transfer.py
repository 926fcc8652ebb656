"""Handles beside chunks: the frames of a call whose storages are partly on the server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.rows import each

from npucall.dtypes import FLOAT
from npucall.errors import InternalError, TooLargeError
from npucall.exchange import Chunk, End, ReplyFrame
from npucall.places import Discard, HandlePart, Keep, RegionPart
from npucall.tensors import TensorSpec
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.calls import encode_tensor
from npucall.wire.frames import split_request_frame
from npucall.wire.messages import split_request
from npucall_client.answers import decode_reply, unpack
from npucall_client.arguments import BoundCall, Placement
from npucall_client.remote.transfer import Incoming, outgoing, place_nothing_in_chunks, size_of

MIB = 2**20
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
