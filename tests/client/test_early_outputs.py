"""Outputs that come while a large call is still sent: of a fake server, and frame by frame."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest
from tests.rows import each

from npucall.errors import CancelledError, InternalError
from npucall.exchange import Chunk, End, Error, ReplyFrame, Resolved
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import join_response
from npucall.wire.status import to_status
from npucall_client.arguments import BoundCall
from npucall_client.remote.transfer import Incoming

from .fake_server import (
    MIB,
    PATIENCE,
    FakeServer,
    answer,
    connected,
    numbers,
    piped,
    reply_of,
    run,
    submit,
)

if TYPE_CHECKING:
    from npucall.exchange import ResponseFrame

    from .fake_server import Answers, Behaviour, Frames

BOTH_SENDERS = pytest.mark.usefixtures("sender")

LARGE = numbers(5 * MIB + 8)
DATA = LARGE.tobytes()
REPLY = reply_of(DATA, inline=False).reply


@pytest.fixture
def server() -> FakeServer:
    server = FakeServer()
    server.limits.early_outputs = True
    return server


def echoing(*, until: int = len(DATA), then: Behaviour | None = None) -> Behaviour:
    """Answers each chunk of the first storage with the same bytes, as soon as it is there."""

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        sent = 0
        for frame in frames:
            if frame.HasField("begin"):
                yield answer(frame.call_id, resolved=REPLY)
            elif frame.HasField("chunk") and frame.chunk.storage == 0:
                yield answer(frame.call_id, chunk=frame.chunk)
                sent += len(frame.chunk.data)
            elif frame.HasField("end"):
                yield answer(frame.call_id, reply=pb.ExecuteResponse(reply=REPLY))
            if sent >= until and then is not None:
                yield from then(frames, context)
                return

    return behaviour


def breaking(frames: Frames, context: grpc.ServicerContext) -> Answers:
    del frames
    context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
    yield from ()


@BOTH_SENDERS
def test_outputs_that_come_while_inputs_are_sent_are_put_together(server: FakeServer) -> None:
    server.behaviours = [echoing()]
    with connected(server) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert [begin.early_outputs for begin in server.begins] == [True]


def test_neither_a_server_that_does_not_know_them_is_asked_nor_does_a_pipeline_ask(
    server: FakeServer,
) -> None:
    """Its other calls fill the way back."""
    with piped(server) as pipeline:
        np.testing.assert_array_equal(submit(pipeline, LARGE).result(PATIENCE), LARGE)
    server.limits.early_outputs = False
    with connected(server) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert [begin.early_outputs for begin in server.begins] == [False, False]


@BOTH_SENDERS
@pytest.mark.usefixtures("no_pauses")
def test_a_stream_that_breaks_behind_outputs_is_begun_anew(server: FakeServer) -> None:
    server.behaviours = [echoing(until=MIB, then=breaking), echoing()]
    target = np.zeros_like(LARGE)
    with connected(server) as client:
        out = run(client.options(outputs={"grad_input": target}), LARGE)
    assert out is target
    np.testing.assert_array_equal(target, LARGE)
    assert server.streams == 2


@BOTH_SENDERS
def test_progress_hears_of_one_step_at_a_time(server: FakeServer) -> None:
    server.behaviours = [echoing()]
    told: list[tuple[int, int, int]] = []
    inside, together = threading.Lock(), []

    def progress(*numbers: int) -> None:
        if not inside.acquire(blocking=False):
            together.append(numbers)
            return
        told.append(numbers)
        inside.release()

    with connected(server) as client:
        run(client.options(progress=progress), LARGE)
    assert not together
    assert [sent for sent, _, _ in told] == sorted(sent for sent, _, _ in told)
    assert [received for _, received, _ in told] == sorted(received for _, received, _ in told)
    assert told[-1] == (LARGE.nbytes + 8, LARGE.nbytes, 2 * LARGE.nbytes + 8)


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
def test_frames_that_make_no_answer_are_an_error_of_the_call(
    frames: tuple[ResponseFrame, ...],
) -> None:
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
