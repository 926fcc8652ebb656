"""Large calls travel in chunks, unasked: npucall_client.remote, against a scripted server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest

from npucall.errors import (
    DeadlineError,
    DrainingError,
    InternalError,
    MessageError,
    NpucallError,
    QueueFullError,
    ServerUnreachableError,
    TooLargeError,
)
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.remote import retry

from .stream_script import (
    KIB,
    MIB,
    ONE,
    StreamScript,
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
    from .stream_script import Answers, Behaviour, Frames

pytestmark = pytest.mark.usefixtures("sender")

LARGE = numbers(5 * MIB + 8)
IN_CHUNKS = [2 * MIB, 4, 4, 2 * MIB, MIB + 8]
"""Bytes of the chunks that a call with it sends; the other two inputs are single numbers."""
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def script() -> StreamScript:
    return StreamScript()


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0.0,) * 4)


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


def test_a_large_call_travels_in_chunks_its_storages_in_turn(script: StreamScript) -> None:
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert (script.streams, script.unary) == (1, 0)
    assert script.chunks == IN_CHUNKS


def test_a_small_call_travels_in_one_message(script: StreamScript) -> None:
    with connected(script) as client:
        run(client, numbers(4 * MIB - 16))
    assert (script.streams, script.unary) == (0, 1)


@pytest.mark.parametrize(("stream_from", "streams"), [(100, 1), (101, 0)])
def test_a_setting_says_from_where_on(script: StreamScript, stream_from: int, streams: int) -> None:
    with connected(script, stream_from=stream_from) as client:
        run(client, numbers(92))
    assert script.streams == streams


def test_a_server_without_streams_gets_one_message(script: StreamScript) -> None:
    script.limits.stream_window = 0
    with connected(script) as client:
        run(client, LARGE)
    assert (script.streams, script.unary) == (0, 1)


def test_what_no_message_of_the_server_holds_travels_in_smaller_chunks(
    script: StreamScript,
) -> None:
    script.limits.max_message_bytes = 1024
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, numbers(2000)), numbers(2000))
    assert script.chunks == [960, 4, 4, 960, 80]


@pytest.mark.parametrize(
    ("wish", "longest"), [(0, 2 * MIB), (64 * KIB, 64 * KIB), (3 * MIB, 3 * MIB), (2**63, 16 * MIB)]
)
def test_chunks_are_as_long_as_the_server_wishes(
    script: StreamScript, wish: int, longest: int
) -> None:
    """0 is what a server tells that does not know the field; 16 MiB is what the contract allows."""
    script.limits.chunk_bytes = wish
    array = numbers(17 * MIB + 8)
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, array), array)
    parts = [size for size in script.chunks if size > len(ONE.tobytes())]
    assert set(parts[:-1]) == {longest}
    assert sum(parts) == array.nbytes


@pytest.mark.parametrize(("wish", "longest"), [(100, 100), (64 * KIB, 960)])
def test_a_wish_does_not_go_beyond_what_a_message_holds(
    script: StreamScript, wish: int, longest: int
) -> None:
    script.limits.max_message_bytes, script.limits.chunk_bytes = 1024, wish
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, numbers(2000)), numbers(2000))
    assert max(script.chunks) == longest


def test_what_never_fits_is_refused_before_anything_is_sent(script: StreamScript) -> None:
    script.limits.memory_limit = 5 * MIB
    with connected(script) as client, pytest.raises(TooLargeError, match="memory_limit") as caught:
        run(client, LARGE)
    assert "5242880" in str(caught.value)
    assert caught.value.details == {"limit": "5242880", "setting": "memory_limit"}
    assert script.streams == 0


def test_the_request_id_goes_with_the_call(script: StreamScript) -> None:
    with connected(script) as client:
        run(client.options(request_id="mine"), LARGE)
    assert [begin.request_id for begin in script.begins] == ["mine"]


def test_an_answer_in_chunks_is_put_together(script: StreamScript) -> None:
    data = LARGE.tobytes()
    parts = ((0, 0, data[:MIB]), (0, MIB, data[MIB : MIB + 1]), (0, MIB + 1, data[MIB + 1 :]))
    script.behaviours = [in_chunks(*parts, size=len(data))]
    with connected(script) as client:
        out = run(client, LARGE)
    np.testing.assert_array_equal(out, LARGE)
    assert out.flags.writeable


def test_an_answer_without_elements_needs_no_chunks(script: StreamScript) -> None:
    script.behaviours = [in_chunks(size=0)]
    with connected(script) as client:
        assert run(client, LARGE).shape == (0,)


def test_a_refusal_ends_the_sending(script: StreamScript) -> None:
    """The rest of 64 MiB would be seen by who reads on."""
    seen = []

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        yield from refusing(QueueFullError("full", retry_after=0.5))(iter([next(frames)]), context)
        seen.extend(frames)

    script.behaviours = [behaviour]
    with (
        connected(script, wait=False) as client,
        pytest.raises(QueueFullError, match="full") as caught,
    ):
        run(client, numbers(64 * MIB))
    assert caught.value.retry_after == 0.5
    assert len(script.chunks) < 32


@pytest.mark.usefixtures("_no_pauses")
@pytest.mark.parametrize("code", [UNAVAILABLE, grpc.StatusCode.CANCELLED])
@pytest.mark.parametrize("after", [1, 3, 6])
def test_a_stream_that_breaks_is_begun_anew_from_the_first_chunk(
    script: StreamScript, after: int, code: grpc.StatusCode
) -> None:
    """CANCELLED is what gRPC answers for streams that a server had not begun when it went down."""
    script.behaviours = [broken(code, after)] * 2
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)
    assert script.streams == 3
    assert script.chunks[-5:] == IN_CHUNKS


@pytest.mark.usefixtures("_no_pauses")
def test_a_stream_that_breaks_in_its_answer_is_begun_anew(script: StreamScript) -> None:
    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        half = in_chunks((0, 0, bytes(MIB)), size=LARGE.nbytes, end=False)
        yield from half(frames, context)
        context.abort(UNAVAILABLE, "broken")

    script.behaviours = [behaviour]
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)


@pytest.mark.usefixtures("_no_pauses")
def test_a_server_that_goes_down_is_asked_again(script: StreamScript) -> None:
    script.behaviours = [refusing(DrainingError("down"))]
    with connected(script) as client:
        np.testing.assert_array_equal(run(client, LARGE), LARGE)


def test_a_stream_that_always_breaks_is_begun_anew_until_the_timeout(script: StreamScript) -> None:
    """The server lives on, so it is not the call that ends it."""
    script.behaviours = [broken(UNAVAILABLE)] * 100
    with connected(script, timeout=1.0) as client, pytest.raises(ServerUnreachableError):
        run(client, LARGE)
    assert script.streams > 1


@pytest.mark.usefixtures("_no_pauses")
@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_what_ends_for_another_reason_is_not_begun_anew(
    script: StreamScript, code: grpc.StatusCode
) -> None:
    script.behaviours = [broken(code)]
    with connected(script) as client, pytest.raises(NpucallError) as caught:
        run(client, LARGE)
    assert caught.value.code is code
    assert script.streams == 1


def test_no_pause_goes_beyond_the_timeout(
    script: StreamScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PAUSES", (1000.0,))
    script.behaviours = [broken(UNAVAILABLE)]
    with connected(script) as client, pytest.raises(ServerUnreachableError):
        run(client, LARGE)


def test_a_deadline_ends_a_call_at_any_chunk(script: StreamScript) -> None:
    """The server reads two frames and no more."""
    ended = threading.Event()

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        context.add_callback(ended.set)
        next(frames), next(frames)
        ended.wait(10)
        yield from ()

    script.behaviours = [behaviour]
    with (
        connected(script) as client,
        pytest.raises(DeadlineError, match=r"did not answer within 0\.3 s"),
    ):
        run(client.options(timeout=0.3), numbers(64 * MIB))
    assert ended.wait(10)


def test_an_answer_in_chunks_is_received_in_the_callers_own_array(script: StreamScript) -> None:
    target = np.zeros_like(LARGE)
    with connected(script) as client:
        out = run(client.options(outputs={"out": target}), LARGE)
    assert out is target
    np.testing.assert_array_equal(target, LARGE)


BROKEN_ANSWERS: dict[str, tuple[Behaviour, type[NpucallError]]] = {
    "a gap": (in_chunks((0, 4, bytes(4)), size=8), InternalError),
    "a part twice": (in_chunks((0, 0, bytes(4)), (0, 0, bytes(4)), size=8), InternalError),
    "too many bytes": (in_chunks((0, 0, bytes(12)), size=8), InternalError),
    "too few bytes": (in_chunks((0, 0, bytes(4)), size=8), InternalError),
    "an output that is none": (in_chunks((1, 0, bytes(8)), size=8), InternalError),
    "no end": (in_chunks((0, 0, bytes(8)), size=8, end=False), InternalError),
    "no frame": (lambda frames, context: iter([answer(1)]), MessageError),
    "no reply": (lambda frames, context: iter([answer(1, end=pb.End())]), InternalError),
    "nothing": (silent, InternalError),
}


@pytest.mark.parametrize(("behaviour", "expected"), BROKEN_ANSWERS.values(), ids=BROKEN_ANSWERS)
def test_an_answer_that_makes_no_sense_is_an_error(
    script: StreamScript, behaviour: Behaviour, expected: type[NpucallError]
) -> None:
    script.behaviours = [behaviour]
    with connected(script) as client, pytest.raises(expected):
        run(client, LARGE)


def test_progress_is_told_from_the_first_chunk_to_the_last(script: StreamScript) -> None:
    data = LARGE.tobytes()
    script.behaviours = [in_chunks((0, 0, data[:MIB]), (0, MIB, data[MIB:]), size=len(data))]
    told: list[tuple[int, int, int]] = []
    with connected(script) as client:
        run(client.options(progress=lambda *numbers: told.append(numbers)), LARGE)
    request, reply = LARGE.nbytes + 8, LARGE.nbytes
    assert told == sorted(told)
    assert told[0][1:] == (0, request)
    assert (request, MIB, request + reply) in told
    assert told[-1] == (request, reply, request + reply)


@pytest.mark.parametrize("at", [1, 4, 7])
def test_what_progress_raises_ends_the_call(script: StreamScript, at: int) -> None:
    calls = []

    def progress(*numbers: int) -> None:
        calls.append(numbers)
        if len(calls) == at:
            raise KeyError("enough")

    with connected(script) as client, pytest.raises(KeyError, match="enough"):
        run(client.options(progress=progress), LARGE)


def test_no_thread_stays_behind(script: StreamScript) -> None:
    script.behaviours = [refusing(QueueFullError("full"))]
    with connected(script) as client:
        before = set(threading.enumerate())
        with pytest.raises(QueueFullError):
            run(client, numbers(64 * MIB))
        run(client, LARGE)
        client_threads = lambda: [  # noqa: E731  # asked again and again
            thread
            for thread in set(threading.enumerate()) - before
            if "ThreadPoolExecutor" not in thread.name  # the scripted server's own
        ]
        until(lambda: not client_threads(), "its threads have ended")


def received_into(sent: Any, target: Any) -> Any:
    """What becomes of a target: the memory in which the answer to a call is received."""
    from npucall.exchange import ReplyFrame
    from npucall.wire.messages import join_response
    from npucall_client.arguments import BoundCall
    from npucall_client.remote.transfer import Incoming

    request = BoundCall("x", storage={"self": sent.reshape(-1).view(np.uint8).data})
    request.targets["out"] = target
    incoming = Incoming(request)
    reply = reply_of(bytes(sent.nbytes), inline=False).reply.SerializeToString()
    assert incoming.take(ReplyFrame(join_response(reply, b"", ()))) is None
    return np.frombuffer(incoming._outputs[0], np.float32)


def test_a_dense_target_is_the_memory_of_the_answer() -> None:
    target = np.zeros(100, np.float32)
    assert np.shares_memory(received_into(numbers(400), target), target)


@pytest.mark.parametrize(
    "target",
    [np.zeros(200, np.float32)[::2], np.zeros(100, np.float64), np.zeros((10, 10), np.float32)],
)
def test_another_target_is_written_when_all_has_come(target: Any) -> None:
    assert not np.shares_memory(received_into(numbers(400), target), target)


def test_a_target_that_is_an_input_too_is_written_when_all_has_come() -> None:
    """A stream that breaks in the middle of the answer is begun anew with that input."""
    array = numbers(400)
    assert not np.shares_memory(received_into(array, array), array)
