"""Large calls travel in chunks, unasked: npucall_client.remote, against a fake server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from tests.rows import each

from npucall.errors import (
    DeadlineError,
    DrainingError,
    NpucallError,
    QueueFullError,
    TooLargeError,
)
from npucall.exchange import ReplyFrame
from npucall.places import HandlePart, Keep
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import join_response
from npucall_client.arguments import BoundCall
from npucall_client.remote.server_limits import ServerLimits
from npucall_client.remote.transfer import Incoming

from .fake_server import (
    KIB,
    MIB,
    PATIENCE,
    FakeServer,
    answer,
    broken,
    complete,
    connected,
    numbers,
    refusing,
    reply_of,
    run,
    silent,
    until,
)

if TYPE_CHECKING:
    from .fake_server import Answers, Behaviour, Frames

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


def test_what_never_fits_is_refused_before_anything_is_sent(server: FakeServer) -> None:
    server.limits.memory_limit = 5 * MIB
    with connected(server) as client, pytest.raises(TooLargeError, match="memory_limit") as caught:
        run(client, LARGE)
    assert "5242880" in str(caught.value)
    assert caught.value.details == {"limit": "5242880", "setting": "memory_limit"}
    assert server.streams == 0


# Answers.


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


# Streams that end.


@BOTH_SENDERS
def test_a_refusal_ends_the_sending_and_no_thread_stays_behind(server: FakeServer) -> None:
    """The rest of 64 MiB would be seen by who reads on."""
    seen = []

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
def test_a_stream_that_breaks_is_begun_anew_from_the_first_chunk(
    behaviours: list[Behaviour],
) -> None:
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
def test_what_ends_for_another_reason_is_not_begun_anew(
    behaviour: Behaviour, code: grpc.StatusCode
) -> None:
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


# Progress.


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


# Targets.


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
