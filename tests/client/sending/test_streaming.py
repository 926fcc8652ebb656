"""Large calls travel in chunks, unasked: npucall_client.sending, against a fake server."""

import threading
from typing import Any

import grpc
import numpy as np
import pytest
from tests.client.fake_server import (
    KIB,
    MIB,
    PATIENCE,
    Answers,
    Behaviour,
    FakeServer,
    Frames,
    answer,
    broken,
    complete,
    connected,
    numbers,
    piped,
    refusing,
    reply_of,
    run,
    silent,
    submit,
    until,
)
from tests.rows import each

from npucall.errors import DeadlineError, DrainingError, NpucallError, QueueFullError, TooLargeError
from npucall.v1 import operator_service_pb2 as pb

BOTH_SENDERS = pytest.mark.usefixtures("sender")

LARGE = numbers(5 * MIB + 8)
DATA = LARGE.tobytes()
IN_CHUNKS = [2 * MIB, 4, 4, 2 * MIB, MIB + 8]
"""Bytes of the chunks that a call with it sends; the other two inputs are single numbers."""
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def in_chunks(*chunks: tuple[int, int, bytes], size: int, end: bool = True) -> Behaviour:
    """Answers with chunks as a test says: storage, offset, data."""

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        call_id = complete(frames)
        yield answer(call_id, reply=reply_of(bytes(size), inline=False))
        for storage, offset, data in chunks:
            chunk = pb.Chunk(storage=storage, offset=offset, data=data)
            yield answer(call_id, chunk=chunk)
        if end:
            yield answer(call_id, end=pb.End())

    return behaviour


# Which calls do, and in which chunks.


@each(
    ("size", "wish", "message", "chunks"),
    [
        (LARGE.nbytes, 0, 0, IN_CHUNKS),  # its storages in turn
        (2000, 0, 1024, [960, 4, 4, 960, 80]),  # which no message of the server holds
        (2000, 100, 1024, [100, 4, 4, *[100] * 19]),
        (2000, 64 * KIB, 1024, [960, 4, 4, 960, 80]),
        (5 * MIB, 3 * MIB, 0, [3 * MIB, 4, 4, 2 * MIB]),
        (4 * MIB, 64 * KIB, 0, [64 * KIB, 4, 4, *[64 * KIB] * 63]),
        (4 * MIB - 16, 64 * KIB, 0, []),  # which is one message
        (17 * MIB + 8, 2**63, 0, [16 * MIB, 4, 4, MIB + 8]),
    ],
)
def test_chunks_are_as_long_as_the_server_wishes_and_its_messages_hold(
    size: int, wish: int, message: int, chunks: list[int]
) -> None:
    """0 is what a server tells that does not know the field; 16 MiB is what the contract allows."""
    server, array = FakeServer(), numbers(size)
    server.limits.chunk_bytes, server.limits.max_message_bytes = wish, message
    with connected(server) as client:
        np.testing.assert_array_equal(run(client, array), array)
    assert server.chunks == chunks


def test_what_never_fits_is_refused_before_anything_is_sent(server: FakeServer) -> None:
    server.limits.memory_limit = 5 * MIB
    with connected(server) as client, pytest.raises(TooLargeError, match="memory_limit") as caught:
        run(client, LARGE)
    assert "5242880" in str(caught.value)
    assert caught.value.details == {"limit": "5242880", "setting": "memory_limit"}
    assert server.streams == 0


@BOTH_SENDERS
def test_an_answer_in_chunks_is_put_together(server: FakeServer) -> None:
    parts = ((0, 0, DATA[:MIB]), (0, MIB, DATA[MIB : MIB + 1]), (0, MIB + 1, DATA[MIB + 1 :]))
    server.behaviours = [in_chunks(*parts, size=len(DATA)), in_chunks(size=0)]
    target = np.zeros_like(LARGE)
    with connected(server) as client:
        out = run(client, LARGE)
        assert run(client, LARGE).shape == (0,)
        assert run(client.options(outputs={"grad_input": target}), LARGE) is target
    np.testing.assert_array_equal(out, LARGE)
    np.testing.assert_array_equal(target, LARGE)
    assert out.flags.writeable


@BOTH_SENDERS
def test_a_refusal_ends_the_sending_and_no_thread_stays_behind(server: FakeServer) -> None:
    """The rest of 64 MiB would be seen by who reads on."""
    seen: list[object] = []

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        yield from refusing(QueueFullError("full", retry_after=0.5))(iter([next(frames)]), context)
        seen.extend(frames)

    def client_threads() -> list[str]:
        """The fake server's own aside."""
        names = [thread.name for thread in set(threading.enumerate()) - before]
        return [name for name in names if "ThreadPoolExecutor" not in name]

    server.behaviours = [behaviour]
    with connected(server, wait=False) as client:
        before = set(threading.enumerate())
        with pytest.raises(QueueFullError, match="full") as caught:
            run(client, numbers(64 * MIB))
        assert caught.value.retry_after == 0.5
        assert len(server.chunks) < 32
        run(client, LARGE)
        until(lambda: not client_threads(), "its threads have ended")


def breaks_in_its_answer(frames: Frames, context: grpc.ServicerContext) -> Answers:
    yield from in_chunks((0, 0, bytes(MIB)), size=LARGE.nbytes, end=False)(frames, context)
    context.abort(UNAVAILABLE, "broken")


@BOTH_SENDERS
@pytest.mark.usefixtures("no_pauses")
@each(
    "behaviours",
    [
        *([broken(UNAVAILABLE, after)] * 2 for after in (1, 3, 6)),
        [broken(grpc.StatusCode.CANCELLED, 3)] * 2,  # of a server that went before it had begun
        [breaks_in_its_answer],
        [refusing(DrainingError("down"))],
    ],
)
def test_a_stream_that_breaks_is_begun_at_the_first_chunk(behaviours: list[Behaviour]) -> None:
    server = FakeServer()
    server.behaviours = behaviours
    with connected(server) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert server.streams == len(behaviours) + 1
    assert server.chunks[-5:] == IN_CHUNKS


@pytest.mark.usefixtures("no_pauses")
@each(
    ("behaviour", "code"),
    [
        (broken(grpc.StatusCode.INTERNAL), grpc.StatusCode.INTERNAL),
        (broken(grpc.StatusCode.RESOURCE_EXHAUSTED), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (silent, grpc.StatusCode.INTERNAL),
        (in_chunks((0, 0, bytes(8)), size=8, end=False), grpc.StatusCode.INTERNAL),
        (lambda *_: iter([answer(1)]), grpc.StatusCode.INVALID_ARGUMENT),  # no frame
    ],
)
def test_what_ends_otherwise_is_not_begun_anew(behaviour: Behaviour, code: grpc.StatusCode) -> None:
    server = FakeServer()
    server.behaviours = [behaviour]
    with connected(server) as client, pytest.raises(NpucallError) as caught:
        run(client, LARGE)
    assert caught.value.code is code
    assert server.streams == 1


@BOTH_SENDERS
def test_a_deadline_ends_a_call_at_any_chunk(server: FakeServer) -> None:
    """The server reads two frames and no more."""
    begun, ended = threading.Event(), threading.Event()

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        if context.add_callback(ended.set):
            begun.set()
        next(frames), next(frames)
        ended.wait(PATIENCE)
        yield from ()

    server.behaviours = [behaviour]
    with (
        connected(server) as client,
        pytest.raises(DeadlineError, match=r"did not answer within 0\.3 s"),
    ):
        run(client.options(timeout=0.3), numbers(64 * MIB))
    assert not begun.is_set() or ended.wait(PATIENCE)


@BOTH_SENDERS
def test_progress_is_told_from_the_first_chunk_to_the_last(server: FakeServer) -> None:
    server.behaviours = [in_chunks((0, 0, DATA[:MIB]), (0, MIB, DATA[MIB:]), size=len(DATA))]
    told: list[tuple[int, int, int]] = []
    with connected(server) as client:
        run(client.options(progress=lambda *numbers: told.append(numbers)), LARGE)
    request, reply = LARGE.nbytes + 8, LARGE.nbytes
    assert told == sorted(told)
    assert told[0][1:] == (0, request)
    assert (request, MIB, request + reply) in told
    assert told[-1] == (request, reply, request + reply)


@BOTH_SENDERS
@each("at", [1, 4, 7])
def test_what_progress_raises_ends_the_call(server: FakeServer, at: int) -> None:
    calls = []

    def progress(*numbers: int) -> None:
        calls.append(numbers)
        if len(calls) == at:
            raise KeyError("enough")

    with connected(server) as client, pytest.raises(KeyError, match="enough"):
        run(client.options(progress=progress), LARGE)


# Outputs that come while inputs are still sent.

REPLY = reply_of(DATA, inline=False).reply


@pytest.fixture
def early(server: FakeServer) -> FakeServer:
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
def test_outputs_that_come_while_inputs_are_sent_are_put_together(early: FakeServer) -> None:
    early.behaviours = [echoing()]
    with connected(early) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert [begin.early_outputs for begin in early.begins] == [True]


def test_neither_an_older_server_is_asked_for_them_nor_by_a_pipeline(early: FakeServer) -> None:
    """Its other calls fill the way back."""
    with piped(early) as pipeline:
        np.testing.assert_array_equal(submit(pipeline, LARGE).result(PATIENCE), LARGE)
    early.limits.early_outputs = False
    with connected(early) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert [begin.early_outputs for begin in early.begins] == [False, False]


@BOTH_SENDERS
@pytest.mark.usefixtures("no_pauses")
def test_a_stream_that_breaks_behind_outputs_is_begun_anew(early: FakeServer) -> None:
    early.behaviours = [echoing(until=MIB, then=breaking), echoing()]
    target = np.zeros_like(LARGE)
    with connected(early) as client:
        out = run(client.options(outputs={"grad_input": target}), LARGE)
    assert out is target
    np.testing.assert_array_equal(target, LARGE)
    assert early.streams == 2


@BOTH_SENDERS
def test_progress_hears_of_one_step_at_a_time(early: FakeServer) -> None:
    early.behaviours = [echoing()]
    told: list[tuple[int, int, int]] = []
    inside, together = threading.Lock(), []

    def progress(*numbers: Any) -> None:
        if not inside.acquire(blocking=False):
            together.append(numbers)
            return
        told.append(numbers)
        inside.release()

    with connected(early) as client:
        run(client.options(progress=progress), LARGE)
    assert not together
    assert [sent for sent, _, _ in told] == sorted(sent for sent, _, _ in told)
    assert [received for _, received, _ in told] == sorted(received for _, received, _ in told)
    assert told[-1] == (LARGE.nbytes + 8, LARGE.nbytes, 2 * LARGE.nbytes + 8)
