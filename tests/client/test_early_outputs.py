"""Outputs that come while a large call is still sent: of a scripted server, and frame by frame."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npucall.errors import CancelledError, DeviceError, InternalError
from npucall.exchange import Chunk, End, Error, Event, ReplyFrame, Resolved, State, after
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import join_response
from npucall.wire.status import to_status
from npucall_client.arguments import BoundCall
from npucall_client.remote import retry
from npucall_client.remote.transfer import Incoming

from .stream_script import MIB, StreamScript, answer, connected, numbers, reply_of, run

if TYPE_CHECKING:
    from npucall.exchange import ResponseFrame

    from .stream_script import Answers, Behaviour, Frames

pytestmark = pytest.mark.usefixtures("sender")

LARGE = numbers(5 * MIB + 8)
DATA = LARGE.tobytes()
REPLY = reply_of(DATA, inline=False).reply


@pytest.fixture
def script() -> StreamScript:
    script = StreamScript()
    script.limits.early_outputs = True
    return script


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0.0,) * 4)


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


def failing(frames: Frames, context: grpc.ServicerContext) -> Answers:
    del frames, context
    yield answer(1, error=to_status(DeviceError("broken")).SerializeToString())


def breaking(frames: Frames, context: grpc.ServicerContext) -> Answers:
    del frames
    context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
    yield from ()


def test_outputs_that_come_while_inputs_are_sent_are_put_together(script: StreamScript) -> None:
    script.behaviours = [echoing()]
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert [begin.early_outputs for begin in script.begins] == [True]


def test_a_server_that_does_not_know_them_is_not_asked(script: StreamScript) -> None:
    script.limits.early_outputs = False
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert [begin.early_outputs for begin in script.begins] == [False]


def test_a_pipeline_does_not_ask(script: StreamScript) -> None:
    """Its other calls fill the way back."""
    with connected(script) as client, client.pipeline() as pipeline:
        one = np.ones((), np.float32)
        call = pipeline.submit("aclnnL1LossBackward", LARGE, self=one, target=one)
        np.testing.assert_array_equal(call.result(20), LARGE)
    assert [begin.early_outputs for begin in script.begins] == [False]


def test_an_error_behind_outputs_is_that_of_the_call(script: StreamScript) -> None:
    script.behaviours = [echoing(until=MIB, then=failing)]
    with connected(script) as client:
        with pytest.raises(DeviceError, match="broken"):
            run(client, LARGE)
        np.testing.assert_array_equal(run(client, LARGE), LARGE)


@pytest.mark.usefixtures("_no_pauses")
def test_a_stream_that_breaks_behind_outputs_is_begun_anew(script: StreamScript) -> None:
    script.behaviours = [echoing(until=MIB, then=breaking), echoing()]
    target = np.zeros_like(LARGE)
    with connected(script) as client:
        out = run(client.options(outputs={"out": target}), LARGE)
    assert out is target
    np.testing.assert_array_equal(target, LARGE)
    assert script.streams == 2


def test_progress_hears_of_one_step_at_a_time(script: StreamScript) -> None:
    script.behaviours = [echoing()]
    told: list[tuple[int, int, int]] = []
    inside, together = threading.Lock(), []

    def progress(*numbers: int) -> None:
        if not inside.acquire(blocking=False):
            together.append(numbers)
            return
        told.append(numbers)
        inside.release()

    with connected(script) as client:
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


def taken(*frames: ResponseFrame) -> Any:
    """What the frames of an answer make."""
    incoming = Incoming(BoundCall("x"))
    *before, last = frames
    assert [incoming.take(frame) for frame in before] == [None] * len(before)
    return incoming.take(last)


def test_the_reply_behind_all_outputs_makes_the_answer() -> None:
    response = taken(RESOLVED, *PARTS, LAST)
    assert [bytes(data) for data in response.storage] == [b"abcdefgh"]
    assert response.reply == SMALL


@pytest.mark.parametrize(
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
        with pytest.raises(CancelledError, match="enough"):
            taken(*before, error)


class Model:
    """What the table makes of frames, and which bytes come next."""

    def __init__(self) -> None:
        self.state: State | None = State.COMPLETE
        self.early = False
        self.come = 0

    def takes(self, frame: ResponseFrame) -> bool:
        """Whether the frame makes sense where the answer is."""
        event = self._event(frame)
        self.state = after(self.state, event) if self.state is not None else None
        self.early = self.early or event is Event.RESOLVED
        if isinstance(frame, Chunk):
            fits = frame.offset == self.come
            self.come += len(frame.data) if fits else 0
            return fits and self.state is not None
        whole = self.come == SIZE or self.state is not State.ENDED
        return whole and self.state is not None

    def _event(self, frame: ResponseFrame) -> Event:
        if isinstance(frame, Resolved):
            return Event.RESOLVED
        if isinstance(frame, Chunk):
            return Event.OUTPUT_CHUNK
        if isinstance(frame, End):
            return Event.OUTPUT_END
        return Event.REPLY if self.early else Event.REPLY_CHUNKED


@given(st.lists(st.sampled_from([RESOLVED, *PARTS, End(), LAST]), max_size=7))
def test_any_order_of_frames_is_taken_as_the_table_says(frames: list[ResponseFrame]) -> None:
    incoming, model = Incoming(BoundCall("x")), Model()
    for frame in frames:
        if not model.takes(frame):
            with pytest.raises(InternalError):
                incoming.take(frame)
            return
        response = incoming.take(frame)
        assert (response is not None) == (model.state is State.ENDED)
        if response is not None:
            assert [bytes(data) for data in response.storage] == [b"abcdefgh"]
