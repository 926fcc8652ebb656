"""client.pipeline(): npucall_client.pipeline and remote.stream, scripted servers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest

import npucall_client
from npucall.errors import (
    CancelledError,
    DeadlineError,
    DrainingError,
    DTypeError,
    InternalError,
    NpucallError,
    QueueFullError,
    ServerUnreachableError,
    ShapeError,
)
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.remote import retry

from .stream_script import (
    KIB,
    MIB,
    ONE,
    PATIENCE,
    StreamScript,
    answer,
    broken,
    complete,
    connected,
    echo,
    numbers,
    refusing,
    reply_of,
    silent,
    until,
)

if TYPE_CHECKING:
    from npucall_client.pipeline import PendingCall, Pipeline

    from .stream_script import Answers, Frames

pytestmark = pytest.mark.usefixtures("sender")

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.fixture
def script() -> StreamScript:
    return StreamScript()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSES", (0.0,) * 4)


def submit(pipeline: Pipeline, array: Any, **options: Any) -> PendingCall[Any]:
    return pipeline.submit("aclnnL1LossBackward", array, self=ONE, target=ONE, **options)


class Held:
    """A server that answers a call when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self._answers: dict[int, threading.Event] = {}
        self._data: dict[int, bytes] = {}
        self._changed = threading.Condition()
        self._ready: list[int] = []
        self._closed = False

    def release(self, call_id: int) -> None:
        with self._changed:
            self._ready.append(call_id)
            self._changed.notify_all()

    def __call__(self, frames: Frames, context: grpc.ServicerContext) -> Answers:
        reader = threading.Thread(target=self._read, args=(frames,))
        reader.start()
        context.add_callback(self._close)
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._closed, PATIENCE)
                if not self._ready:
                    break
                call_id = self._ready.pop(0)
            yield answer(call_id, reply=reply_of(self._data[call_id]))
        reader.join()

    def _close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _read(self, frames: Frames) -> None:
        try:
            for frame in frames:
                if frame.HasField("begin"):
                    self._data[frame.call_id] = frame.begin.request.storage[0].data
                    self.begun.append(frame.call_id)
                elif frame.HasField("cancel"):
                    self.cancelled.append(frame.call_id)
        except grpc.RpcError:
            pass
        self._close()


def test_each_call_gets_its_own_answer(script: StreamScript) -> None:
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(4 * size)) for size in range(50)]
        assert [call.result(PATIENCE).size for call in calls] == list(range(50))
    assert (script.streams, script.unary) == (1, 0)


def test_an_answer_tells_all_that_execute_does(script: StreamScript) -> None:
    with connected(script) as client, client.pipeline() as pipeline:
        call = submit(pipeline, numbers(8))
        answer = call.answer(PATIENCE)
        assert answer.value is call.result()
        assert list(answer.outputs) == ["out"]
        assert answer.total_ns > 0


def test_a_large_call_travels_in_chunks_between_small_ones(script: StreamScript) -> None:
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(size)) for size in (8, 5 * MIB, 8)]
        assert [call.result(PATIENCE).nbytes for call in calls] == [8, 5 * MIB, 8]
    assert script.chunks == [2 * MIB, 4, 4, 2 * MIB, MIB]
    assert [begin.chunked for begin in script.begins] == [False, True, False]


@pytest.mark.parametrize(("wish", "longest"), [(0, 2 * MIB), (64 * KIB, 64 * KIB)])
def test_its_chunks_are_as_long_as_the_server_wishes(
    script: StreamScript, wish: int, longest: int
) -> None:
    script.limits.chunk_bytes = wish
    with connected(script) as client, client.pipeline() as pipeline:
        assert submit(pipeline, numbers(5 * MIB)).result(PATIENCE).nbytes == 5 * MIB
    assert max(script.chunks) == longest


def test_no_first_frame_holds_more_than_a_chunk(script: StreamScript) -> None:
    script.limits.chunk_bytes = 64 * KIB
    with connected(script) as client, client.pipeline() as pipeline:
        for size in (63 * KIB, 64 * KIB - 8):  # beside two numbers of 4 bytes, and the call
            submit(pipeline, numbers(size)).result(PATIENCE)
    assert [begin.chunked for begin in script.begins] == [False, True]


def test_calls_end_in_the_order_of_their_answers(script: StreamScript) -> None:
    held = Held()
    script.behaviours = [held]
    with connected(script) as client, client.pipeline() as pipeline:
        first, second, third = (submit(pipeline, numbers(4 * n)) for n in (1, 2, 3))
        until(lambda: len(held.begun) == 3, "all have been sent")
        for call_id in (2, 3, 1):
            held.release(call_id)
        assert list(pipeline.as_completed()) == [second, third, first]


def test_as_completed_gives_calls_that_ended_before_once(script: StreamScript) -> None:
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(8)) for _ in range(3)]
        for call in calls:
            call.result(PATIENCE)
        assert set(pipeline.as_completed()) == set(calls)
        assert list(pipeline.as_completed()) == []


def test_answers_that_nobody_holds_take_no_memory(script: StreamScript) -> None:
    with connected(script) as client, client.pipeline() as pipeline:
        for _ in range(3):
            submit(pipeline, numbers(8)).result(PATIENCE)
        until(lambda: not pipeline._in_flight, "all have ended")
        assert len(pipeline._finished) == 0


@pytest.mark.threads("futures of asyncio work with the functions of asyncio")
def test_calls_work_with_the_standard_librarys_functions(script: StreamScript) -> None:
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(8)) for _ in range(3)]
        assert set(as_completed(calls, PATIENCE)) == set(calls)


def test_leaving_waits_for_all(script: StreamScript) -> None:
    with connected(script) as client:
        with client.pipeline() as pipeline:
            calls = [submit(pipeline, numbers(8)) for _ in range(20)]
        assert all(call.done() for call in calls)


def test_a_pipeline_that_was_not_used_opens_no_stream(script: StreamScript) -> None:
    with connected(script) as client, client.pipeline():
        pass
    assert script.streams == 0


def test_no_thread_stays_behind(script: StreamScript) -> None:
    with connected(script) as client:
        with client.pipeline() as pipeline:
            submit(pipeline, numbers(8)).result(PATIENCE)
        assert "npucall-pipeline" not in [thread.name for thread in threading.enumerate()]


def test_no_more_calls_are_in_flight_than_the_servers_window(script: StreamScript) -> None:
    held = Held()
    script.behaviours = [held]
    with (
        connected(script) as client,
        client.pipeline() as pipeline,
        ThreadPoolExecutor(1) as pool,
    ):
        for _ in range(4):
            submit(pipeline, numbers(8))
        fifth = pool.submit(submit, pipeline, numbers(8))
        until(lambda: len(held.begun) == 4, "four have been sent")
        assert not fifth.done()
        held.release(1)
        call = fifth.result(PATIENCE)
        until(lambda: len(held.begun) == 5, "the fifth one has been sent")
        for call_id in (2, 3, 4, 5):
            held.release(call_id)
        assert call.result(PATIENCE).nbytes == 8


def test_submit_waits_for_a_place_no_longer_than_the_calls_timeout(script: StreamScript) -> None:
    held = Held()
    script.behaviours = [held]
    with connected(script) as client, client.pipeline() as pipeline:
        for _ in range(4):
            submit(pipeline, numbers(8))
        with pytest.raises(DeadlineError, match="none of the 4 open calls"):
            submit(pipeline, numbers(8), timeout=0.05)
        until(lambda: len(held.begun) == 4, "four have been sent")
        for call_id in (1, 2, 3, 4):
            held.release(call_id)


def test_what_is_wrong_with_an_array_is_raised_at_once(script: StreamScript) -> None:
    with connected(script) as client, client.pipeline() as pipeline:
        with pytest.raises(DTypeError):
            submit(pipeline, np.array(["text"]))
        assert list(pipeline.as_completed()) == []


def test_an_error_is_that_of_its_call(script: StreamScript) -> None:
    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        yield from refusing(ShapeError("no"))(iter([next(frames)]), context)
        yield from echo(frames, context)

    script.behaviours = [behaviour]
    with connected(script) as client, client.pipeline() as pipeline:
        bad, good = submit(pipeline, numbers(8)), submit(pipeline, numbers(8))
        with pytest.raises(ShapeError, match="no"):
            bad.result(PATIENCE)
        assert good.result(PATIENCE).nbytes == 8


def test_an_answer_that_makes_no_sense_is_an_error_of_its_call(script: StreamScript) -> None:
    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        yield answer(complete(frames), end=pb.End())
        yield from echo(frames, context)

    script.behaviours = [behaviour]
    with connected(script) as client, client.pipeline() as pipeline:
        bad, good = submit(pipeline, numbers(8)), submit(pipeline, numbers(8))
        assert isinstance(bad.exception(PATIENCE), InternalError)
        assert good.result(PATIENCE).nbytes == 8


def test_a_deadline_ends_a_call_that_is_not_answered(script: StreamScript) -> None:
    held = Held()
    script.behaviours = [held]
    with connected(script) as client, client.pipeline() as pipeline:
        late = submit(pipeline, numbers(8), timeout=0.1)
        other = submit(pipeline, numbers(8))
        with pytest.raises(DeadlineError, match=r"did not answer within 0\.1 s"):
            late.result(PATIENCE)
        assert 0 < script.begins[0].timeout_ns <= 100_000_000
        until(lambda: held.cancelled == [1], "the server is told")
        held.release(2)
        assert other.result(PATIENCE).nbytes == 8


def test_the_soonest_deadline_is_kept_whatever_came_before(script: StreamScript) -> None:
    script.behaviours = [silent]
    with connected(script) as client, client.pipeline() as pipeline:
        slow = submit(pipeline, numbers(8), timeout=0.3)
        fast = submit(pipeline, numbers(8), timeout=0.05)
        assert next(pipeline.as_completed()) is fast
        assert isinstance(slow.exception(PATIENCE), DeadlineError)


def test_a_cancel_ends_a_call_and_the_server_is_told(script: StreamScript) -> None:
    held = Held()
    script.behaviours = [held]
    with connected(script) as client, client.pipeline() as pipeline:
        call = submit(pipeline, numbers(8))
        until(lambda: held.begun == [1], "it has been sent")
        assert call.cancel()
        with pytest.raises(CancelledError):
            call.result(PATIENCE)
        until(lambda: held.cancelled == [1], "the server is told")
        assert not call.cancel()


def test_a_stream_that_breaks_is_opened_again_and_what_had_no_answer_sent(
    script: StreamScript,
) -> None:
    script.behaviours = [broken(UNAVAILABLE, 3), broken(UNAVAILABLE, 1)]
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(4 * n)) for n in (1, 2, 3)]
        assert [call.result(PATIENCE).size for call in calls] == [1, 2, 3]
    assert script.streams == 3


def test_what_was_answered_is_not_sent_again(script: StreamScript) -> None:
    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        yield from echo(iter([next(frames)]), context)
        next(frames)
        context.abort(UNAVAILABLE, "broken")

    script.behaviours = [behaviour]
    with connected(script) as client, client.pipeline() as pipeline:
        first = submit(pipeline, numbers(4))
        first.result(PATIENCE)
        assert submit(pipeline, numbers(8)).result(PATIENCE).size == 2
    assert len(script.begins) == 3


def test_a_stream_that_the_server_ends_is_opened_again(script: StreamScript) -> None:
    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        next(frames)
        yield from ()

    script.behaviours = [behaviour]
    with connected(script) as client, client.pipeline() as pipeline:
        assert submit(pipeline, numbers(8)).result(PATIENCE).size == 2


def test_a_call_that_a_server_refuses_since_it_goes_down_waits_for_the_next_stream(
    script: StreamScript,
) -> None:
    """The other call on the first stream gets its answer before that is given up."""

    def behaviour(frames: Frames, context: grpc.ServicerContext) -> Answers:
        first, second = next(frames), next(frames)
        yield from refusing(DrainingError("down"))(iter([first]), context)
        yield from echo(iter([second]), context)
        for _ in frames:
            pass

    script.behaviours = [behaviour]
    with connected(script) as client, client.pipeline() as pipeline:
        first, second = submit(pipeline, numbers(4)), submit(pipeline, numbers(8))
        assert second.result(PATIENCE).size == 2
        assert first.result(PATIENCE).size == 1
    assert script.streams == 2


def test_calls_of_a_stream_that_the_server_ended_without_a_word_are_sent_again(
    script: StreamScript,
) -> None:
    script.behaviours = [broken(grpc.StatusCode.CANCELLED, 2)] * 2
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(4 * size)) for size in range(5)]
        assert [call.result(PATIENCE).size for call in calls] == list(range(5))
    assert script.streams == 3


def test_calls_whose_streams_always_break_raise_that(
    script: StreamScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server lives on, so it is not the call that ends it: only the timeout ends that."""
    monkeypatch.setattr(retry, "PAUSES", (0.1, 0.3, 0.9, 2.7))
    script.behaviours = [broken(UNAVAILABLE)] * 100
    with connected(script, timeout=1.0) as client, client.pipeline() as pipeline:
        error = submit(pipeline, numbers(8)).exception(PATIENCE)
    assert isinstance(error, ServerUnreachableError)
    assert script.streams > 1


@pytest.mark.parametrize("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_what_ends_a_stream_for_good_is_raised_by_all_its_calls_and_the_next_one_is_new(
    script: StreamScript, code: grpc.StatusCode
) -> None:
    script.behaviours = [broken(code, 2)]
    with connected(script) as client, client.pipeline() as pipeline:
        for call in [submit(pipeline, numbers(8)) for _ in range(2)]:
            error = call.exception(PATIENCE)
            assert isinstance(error, NpucallError)
            assert error.code is code
        assert submit(pipeline, numbers(8)).result(PATIENCE).size == 2


def test_a_full_server_is_an_error_of_the_call(script: StreamScript) -> None:
    script.behaviours = [refusing(QueueFullError("full", retry_after=0.5))]
    with connected(script, wait=False) as client, client.pipeline() as pipeline:
        error = submit(pipeline, numbers(8)).exception(PATIENCE)
        assert isinstance(error, QueueFullError)
        assert error.retry_after == 0.5


def test_closing_the_client_ends_the_calls_of_its_pipelines(script: StreamScript) -> None:
    script.behaviours = [silent]
    with connected(script) as client, client.pipeline() as pipeline:
        call = submit(pipeline, numbers(8))
        until(lambda: script.streams == 1, "the stream is open")
        client.close()
        assert isinstance(call.exception(PATIENCE), CancelledError)
        assert isinstance(submit(pipeline, numbers(8)).exception(PATIENCE), CancelledError)


@pytest.mark.parametrize("target", ["a server", "local:"])
def test_a_pipeline_that_is_closed_refuses_calls(script: StreamScript, target: str) -> None:
    """It hung for ever, whatever the timeout."""
    with (
        connected(script) as client,
        npucall_client.connect("local:") as local,
        (client if target == "a server" else local).pipeline() as pipeline,
    ):
        submit(pipeline, ONE)
        pipeline.close()
        with pytest.raises(CancelledError, match="the pipeline is closed"):
            submit(pipeline, ONE)


def test_options_of_the_client_hold_for_its_pipeline(script: StreamScript) -> None:
    target = np.zeros(2, np.float32)
    options = {"request_id": "mine", "outputs": {"out": target}}
    with connected(script) as client, client.options(**options).pipeline() as pipeline:
        assert submit(pipeline, numbers(8)).result(PATIENCE) is target
    assert target.tolist() == [0.0, 1.0]
    assert script.begins[0].request_id == "mine"


def test_a_server_without_streams_answers_one_call_after_the_other(script: StreamScript) -> None:
    script.limits.stream_window = 0
    with connected(script) as client, client.pipeline() as pipeline:
        calls = [submit(pipeline, numbers(8)) for _ in range(3)]
        assert all(call.done() for call in calls)
    assert script.unary == 3


def test_without_a_server_a_call_is_computed_at_once() -> None:
    with npucall_client.connect("local:") as client, client.pipeline() as pipeline:
        call = pipeline.submit(l1_loss_backward, ONE, np.full((), 2, np.float32), ONE)
        assert call.done()
        assert call.result() == 1.0
        bad = pipeline.submit(l1_loss_backward, ONE, np.ones(2, np.float32), np.ones(3, np.float32))
        assert isinstance(bad.exception(), ShapeError)
        assert list(pipeline.as_completed()) == [call, bad]


def test_several_threads_share_a_pipeline(script: StreamScript) -> None:
    with (
        connected(script) as client,
        client.pipeline() as pipeline,
        ThreadPoolExecutor(8) as pool,
    ):
        sizes = pool.map(
            lambda n: submit(pipeline, numbers(4 * n)).result(PATIENCE).size, range(99)
        )
        assert list(sizes) == list(range(99))
