"""What a pipeline sends: sending.writer without gRPC, and messages of many frames with it."""

import threading

import grpc
import numpy as np
from tests.client.fake_server import (
    KIB,
    MIB,
    PATIENCE,
    Answers,
    FakeServer,
    Frames,
    answer,
    numbers,
    piped,
    reply_of,
    submit,
)
from tests.client.prototypes import bound
from tests.rows import each

from npucall.limits import FRAMES_PER_MESSAGE
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.sending.request import Request
from npucall_client.sending.thread_carrier import Driven
from npucall_client.sending.threads import THREADS
from npucall_client.sending.writer import OpenStream, SentCall, Writer


class Connection:
    """Nobody in particular calls, unless the test says who."""

    def __init__(self) -> None:
        self.who = ""

    async def authorization(self) -> str:
        return self.who

    def authorization_lasts(self) -> float | None:
        return 0.001 if self.who else None


class Written:
    """A writer, and what it sends on one stream."""

    def __init__(self, most: int, chunk_bytes: int = 2 * MIB) -> None:
        self.open: dict[int, SentCall] = {}
        self.connection = Connection()
        self.lock = threading.Lock()
        self.writer = Writer(
            self.connection, self.open, THREADS.condition(self.lock), self.lock, chunk_bytes, most
        )
        self.opened = OpenStream()
        self._messages = Driven(self.writer.messages(self.opened))

    def add(self, count: int = 1, elements: int = 2) -> None:
        array = np.ones(elements, np.float32)
        for _ in range(count):
            call = bound(l1_loss_backward, {}, array, array, array)
            sent = SentCall(Request(PATIENCE, call=call), lambda _: None)
            sent.id = len(self.open) + 1
            with self.lock:
                self.open[sent.id] = sent
                self.writer.add(sent)

    def close(self) -> list[list[tuple[int, str]]]:
        """Ids and kinds of the frames of each message that is left."""
        with self.lock:
            self.writer.close()
            self.open.clear()
        return [kinds(message) for message in self._messages]

    def next(self) -> list[tuple[int, str]]:
        return kinds(next(self._messages))


def kinds(message: bytes) -> list[tuple[int, str]]:
    read = pb.ExecuteStreamRequest.FromString(message)
    return [(frame.call_id, str(frame.WhichOneof("frame"))) for frame in (read, *read.more)]


@each(
    ("most", "calls", "elements", "sizes"),
    [
        (64, 5, 2, [5]),
        (0, 5, 2, [1] * 5),
        (1, 5, 2, [1] * 5),
        (2, 5, 2, [2, 2, 1]),
        (1000, FRAMES_PER_MESSAGE + 1, 2, [FRAMES_PER_MESSAGE, 1]),
        (64, 5, 8 * KIB, [2, 2, 1]),
    ],
)
def test_a_message_has_no_more_frames_than_the_server_takes_the_contract_allows_and_fit(
    most: int, calls: int, elements: int, sizes: list[int]
) -> None:
    written = Written(most)
    written.add(calls, elements)
    messages = [written.next() for _ in sizes]
    assert list(map(len, messages)) == sizes
    frames = [frame for message in messages for frame in message]
    assert frames == [(call_id, "begin") for call_id in range(1, calls + 1)]
    assert written.close() == []


def test_a_chunk_goes_alone_and_in_its_place() -> None:
    written = Written(64)
    written.add(1)
    written.add(1, elements=MIB // 2)
    written.add(1)
    assert written.next() == [(1, "begin"), (2, "begin")]
    assert [written.next() for _ in range(3)] == [[(2, "chunk")]] * 3
    assert written.next() == [(2, "end"), (3, "begin")]


def test_a_credential_goes_before_the_calls_and_cancels_too() -> None:
    written = Written(64)
    written.add(3)
    with written.lock:
        del written.open[1], written.open[3]  # 3 was cancelled before it went
        written.writer.cancel(1)
    written.connection.who = "Bearer x"
    assert written.next() == [(0, "credential"), (1, "cancel"), (2, "begin")]


def test_a_stream_that_is_over_sends_nothing_more() -> None:
    written = Written(1)
    written.add(3)
    written.next()
    written.opened.over = True
    assert list(written._messages) == []


def in_pairs(frames: Frames, context: grpc.ServicerContext) -> Answers:
    """Answers two calls in one message, to a caller who says that it takes many frames."""
    metadata = dict(context.invocation_metadata())
    assert metadata["npucall-frames-per-message"] == str(FRAMES_PER_MESSAGE)
    for pair in zip(frames, frames, strict=False):
        second, first = (
            answer(each.call_id, reply=reply_of(each.begin.request.storage[0].data))
            for each in pair
        )
        first.more.append(second)
        yield first


def test_answers_of_one_message_reach_their_calls() -> None:
    server = FakeServer()
    server.behaviours = [in_pairs]
    with piped(server) as pipeline:
        calls = [submit(pipeline, numbers(4 * size)) for size in range(8)]
        assert [call.result(PATIENCE).size for call in calls] == list(range(8))


@each("most", [0, 1, 3, 64])
def test_a_pipeline_keeps_to_what_the_server_takes(most: int) -> None:
    server = FakeServer()
    server.limits.frames_per_message = most
    server.limits.stream_window = 32
    with piped(server) as pipeline:
        calls = [submit(pipeline, numbers(4 * size)) for size in range(200)]
        assert [call.result(PATIENCE).size for call in calls] == list(range(200))
    assert max(server.frames) <= max(1, most)
    assert sum(server.frames) == 200
