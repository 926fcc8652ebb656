"""client.pipeline(): npucall_client.sending.pipeline and remote.stream, against a fake server."""

import asyncio
import queue
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any

import grpc
import numpy as np
import pytest
from tests.client import fake_server as fake
from tests.rows import each

import npucall_client
from npucall import errors
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall_client.sending.stream import CallStream
from npucall_client.sending.writer import SentCall

pytestmark = pytest.mark.usefixtures("no_pauses")
BOTH_SENDERS = pytest.mark.usefixtures("sender")
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
PAIR = fake.numbers(8)


class ByHand:
    """A stream that answers a call when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        self._data: dict[int, bytes] = {}
        self._released: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def release(self, *call_ids: int) -> None:
        fake.until(lambda: set(call_ids) <= set(self.begun), "they have been sent")
        for call_id in call_ids:
            self._released.put(call_id)

    def __call__(self, frames: fake.Frames, context: grpc.ServicerContext) -> fake.Answers:
        reader = threading.Thread(target=self._read, args=(frames,))
        reader.start()
        context.add_callback(lambda: self._released.put(None))
        while (call_id := self._released.get()) is not None:
            yield fake.answer(call_id, reply=fake.reply_of(self._data[call_id]))
        reader.join()

    def _read(self, frames: fake.Frames) -> None:
        with suppress(grpc.RpcError):
            for frame in frames:
                if frame.HasField("begin"):
                    self._data[frame.call_id] = frame.begin.request.storage[0].data
                    self.begun.append(frame.call_id)
                elif frame.HasField("cancel"):
                    self.cancelled.append(frame.call_id)
        self._released.put(None)


@pytest.fixture
def by_hand(server: fake.FakeServer) -> ByHand:
    behaviour = ByHand()
    server.behaviours = [behaviour]
    return behaviour


@BOTH_SENDERS
def test_each_call_gets_its_own_answer_and_leaving_waits_for_all(server: fake.FakeServer) -> None:
    with fake.connected(server) as client:
        with client.pipeline() as pipeline:
            calls = [fake.submit(pipeline, fake.numbers(4 * size)) for size in range(50)]
        assert all(call.done() for call in calls)
        assert [call.result(fake.PATIENCE).size for call in calls] == list(range(50))
        told = calls[1].answer(fake.PATIENCE)  # all that execute does
        assert told.value is calls[1].result()
        assert list(told.outputs) == ["grad_input"]
        assert told.total_ns > 0
        assert "npucall-pipeline" not in [thread.name for thread in threading.enumerate()]
    assert (server.streams, server.unary) == (1, 0)


@BOTH_SENDERS
def test_large_calls_travel_in_the_chunks_that_the_server_wishes_between_small_ones(
    server: fake.FakeServer,
) -> None:
    sizes = (
        63 * fake.KIB,
        64 * fake.KIB - 8,
        8,
        fake.MIB,
        8,
    )  # beside two numbers of 4 bytes, and the call
    server.limits.chunk_bytes = 64 * fake.KIB
    with fake.piped(server) as pipeline:
        calls = [fake.submit(pipeline, fake.numbers(size)) for size in sizes]
        assert [call.result(fake.PATIENCE).nbytes for call in calls] == list(sizes)
    assert [begin.chunked for begin in server.begins] == [False, True, False, True, False]
    assert server.chunks == [64 * fake.KIB - 8, 4, 4, 64 * fake.KIB, 4, 4, *[64 * fake.KIB] * 15]


@BOTH_SENDERS
def test_as_completed_gives_calls_once_in_the_order_of_their_answers(
    server: fake.FakeServer, by_hand: ByHand
) -> None:
    with fake.piped(server) as pipeline:
        first, second, third = (fake.submit(pipeline, fake.numbers(4 * n)) for n in (1, 2, 3))
        by_hand.release(2, 3, 1)
        third.result(fake.PATIENCE)
        assert list(pipeline.as_completed()) == [second, third, first]
        assert list(pipeline.as_completed()) == []


def test_answers_that_nobody_holds_take_no_memory(server: fake.FakeServer) -> None:
    with fake.piped(server) as pipeline:
        for _ in range(3):
            fake.submit(pipeline, PAIR).result(fake.PATIENCE)
        fake.until(lambda: not pipeline._in_flight, "all have ended")
        assert len(pipeline._finished) == 0


def test_calls_work_with_the_standard_librarys_functions(server: fake.FakeServer) -> None:
    async def gather(calls: list[Any]) -> list[Any]:
        return await asyncio.gather(*map(asyncio.wrap_future, calls))

    with fake.piped(server) as pipeline:
        calls: Any = [fake.submit(pipeline, fake.numbers(4 * size)) for size in range(3)]
        assert set(as_completed(calls, fake.PATIENCE)) == set(calls)
        assert [found.size for found in asyncio.run(gather(calls))] == [0, 1, 2]


@BOTH_SENDERS
def test_calls_in_flight_keep_to_the_window(server: fake.FakeServer, by_hand: ByHand) -> None:
    with fake.piped(server) as pipeline, ThreadPoolExecutor(1) as pool:
        for _ in range(4):
            fake.submit(pipeline, PAIR)
        with pytest.raises(errors.DeadlineError, match="none of the 4 open calls"):
            fake.submit(pipeline, PAIR, timeout=0.05)
        fifth = pool.submit(fake.submit, pipeline, PAIR)
        fake.until(lambda: len(by_hand.begun) == 4, "four have been sent")
        assert not fifth.done()
        by_hand.release(1)
        call = fifth.result(fake.PATIENCE)
        fake.until(lambda: len(by_hand.begun) == 5, "the fifth one has been sent")
        by_hand.release(*by_hand.begun[1:])
        assert call.result(fake.PATIENCE).nbytes == 8


@BOTH_SENDERS
def test_an_error_is_that_of_its_call(server: fake.FakeServer) -> None:
    def behaviour(frames: fake.Frames, context: grpc.ServicerContext) -> fake.Answers:
        yield from fake.refusing(errors.ShapeError("no"))(iter([next(frames)]), context)
        yield fake.answer(fake.complete(frames), end=pb.End())  # which makes no sense
        yield from fake.echo(frames, context)

    server.behaviours = [behaviour]
    with fake.piped(server) as pipeline:
        with pytest.raises(errors.DTypeError):  # at once
            fake.submit(pipeline, np.array(["text"]))
        assert list(pipeline.as_completed()) == []
        bad, odd, good = (fake.submit(pipeline, PAIR) for _ in range(3))
        with pytest.raises(errors.ShapeError, match="no"):
            bad.result(fake.PATIENCE)
        assert isinstance(odd.exception(fake.PATIENCE), errors.InternalError)
        assert good.result(fake.PATIENCE).nbytes == 8


@BOTH_SENDERS
def test_a_deadline_ends_a_call_without_answer(server: fake.FakeServer, by_hand: ByHand) -> None:
    with fake.piped(server) as pipeline:
        late = fake.submit(pipeline, PAIR, timeout=0.5)
        other = fake.submit(pipeline, PAIR)
        with pytest.raises(errors.DeadlineError, match=r"did not answer within 0\.5 s"):
            late.result(fake.PATIENCE)
        by_hand.release(2)
        assert other.result(fake.PATIENCE).nbytes == 8
        if 1 in by_hand.begun:
            assert 0 < server.begins[0].timeout_ns <= 500_000_000
            fake.until(lambda: by_hand.cancelled == [1], "the server is told")


@BOTH_SENDERS
def test_the_soonest_deadline_is_kept_whatever_came_before(server: fake.FakeServer) -> None:
    server.behaviours = [fake.silent]
    with fake.piped(server) as pipeline:
        slow = fake.submit(pipeline, PAIR, timeout=500.0)
        fast = fake.submit(pipeline, PAIR, timeout=0.05)
        assert next(pipeline.as_completed()) is fast
        assert not slow.done()
        slow.cancel()


@BOTH_SENDERS
def test_a_cancel_ends_a_call_and_is_told(server: fake.FakeServer, by_hand: ByHand) -> None:
    with fake.piped(server) as pipeline:
        call = fake.submit(pipeline, PAIR)
        fake.until(lambda: by_hand.begun == [1], "it has been sent")
        assert call.cancel()
        with pytest.raises(errors.CancelledError):
            call.result(fake.PATIENCE)
        fake.until(lambda: by_hand.cancelled == [1], "the server is told")
        assert not call.cancel()


def ended(frames: fake.Frames, context: grpc.ServicerContext) -> fake.Answers:
    """By the server, well."""
    next(frames)
    yield from ()


@BOTH_SENDERS
@each(
    "behaviours",
    [
        [fake.broken(UNAVAILABLE, 3), fake.broken(UNAVAILABLE, 1)],
        [fake.broken(grpc.StatusCode.CANCELLED, 2)] * 2,
        [ended],
    ],
)
def test_a_stream_that_ends_is_opened_again_and_what_had_no_answer_sent(behaviours: Any) -> None:
    server = fake.FakeServer()
    server.behaviours = behaviours
    with fake.piped(server) as pipeline:
        calls = [fake.submit(pipeline, fake.numbers(4 * n)) for n in range(5)]
        assert [call.result(fake.PATIENCE).size for call in calls] == list(range(5))
    assert server.streams == len(behaviours) + 1


def test_what_was_answered_is_not_sent_again(server: fake.FakeServer) -> None:
    def behaviour(frames: fake.Frames, context: grpc.ServicerContext) -> fake.Answers:
        yield from fake.echo(iter([next(frames)]), context)
        next(frames)
        context.abort(UNAVAILABLE, "broken")

    server.behaviours = [behaviour]
    with fake.piped(server) as pipeline:
        first = fake.submit(pipeline, fake.numbers(4))
        first.result(fake.PATIENCE)
        assert fake.submit(pipeline, PAIR).result(fake.PATIENCE).size == 2
    assert len(server.begins) == 3


@BOTH_SENDERS
def test_a_call_that_a_server_refuses_since_it_goes_down_waits_for_the_next_stream(
    server: fake.FakeServer,
) -> None:
    """The other call on the first stream gets its answer before that is given up."""

    def behaviour(frames: fake.Frames, context: grpc.ServicerContext) -> fake.Answers:
        first, second = next(frames), next(frames)
        yield from fake.refusing(errors.DrainingError("down"))(iter([first]), context)
        yield from fake.echo(iter([second]), context)
        for _ in frames:
            pass

    server.behaviours = [behaviour]
    with fake.piped(server) as pipeline:
        first, second = fake.submit(pipeline, fake.numbers(4)), fake.submit(pipeline, PAIR)
        assert second.result(fake.PATIENCE).size == 2
        assert first.result(fake.PATIENCE).size == 1
    assert server.streams == 2


@each("code", [grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_what_ends_a_stream_for_good_is_raised_by_all_its_calls_and_the_next_one_is_new(
    code: grpc.StatusCode,
) -> None:
    server = fake.FakeServer()
    server.behaviours = [fake.broken(code, 2)]
    with fake.piped(server) as pipeline:
        for call in [fake.submit(pipeline, PAIR) for _ in range(2)]:
            error = call.exception(fake.PATIENCE)
            assert isinstance(error, errors.NpucallError)
            assert error.code is code
        assert fake.submit(pipeline, PAIR).result(fake.PATIENCE).size == 2


@BOTH_SENDERS
def test_closing_the_client_ends_the_calls_of_its_pipelines(server: fake.FakeServer) -> None:
    server.behaviours = [fake.silent]
    with fake.connected(server) as client, client.pipeline() as pipeline:
        call = fake.submit(pipeline, PAIR)
        fake.until(lambda: server.streams == 1, "the stream is open")
        client.close()
        assert isinstance(call.exception(fake.PATIENCE), errors.CancelledError)
        assert isinstance(
            fake.submit(pipeline, PAIR).exception(fake.PATIENCE), errors.CancelledError
        )


@BOTH_SENDERS
def test_a_call_that_comes_too_late_for_its_stream_has_the_error_that_ended_it(
    server: fake.FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is closed opens no stream; no call looks for one again and again."""
    send, opened = CallStream.send, []

    async def late(stream: CallStream, call: SentCall) -> bool:
        opened.append(stream)
        await stream._task.join()
        return await send(stream, call)

    with fake.connected(server) as client, client.pipeline() as pipeline:
        client.close()
        monkeypatch.setattr(CallStream, "send", late)
        error = fake.submit(pipeline, PAIR).exception(fake.PATIENCE)
        assert isinstance(error, errors.CancelledError)
    assert len(opened) == 1


@BOTH_SENDERS
def test_a_pipeline_that_is_closed_refuses_calls(server: fake.FakeServer) -> None:
    """It hung for ever, whatever the timeout."""
    with fake.connected(server) as client, npucall_client.connect("local:") as local:
        for each_client in client, local:
            with each_client.pipeline() as pipeline:
                fake.submit(pipeline, fake.ONE)
                pipeline.close()
                with pytest.raises(errors.CancelledError, match="the pipeline is closed"):
                    fake.submit(pipeline, fake.ONE)


def test_options_of_the_client_hold_for_its_pipeline(server: fake.FakeServer) -> None:
    target = np.zeros(2, np.float32)
    options: Any = {"request_id": "mine", "outputs": {"grad_input": target}}
    with fake.connected(server) as client, client.options(**options).pipeline() as pipeline:
        assert fake.submit(pipeline, PAIR).result(fake.PATIENCE) is target
    assert target.tolist() == [0.0, 1.0]
    assert server.begins[0].request_id == "mine"


def test_a_server_without_streams_answers_one_call_after_the_other(server: fake.FakeServer) -> None:
    server.limits.stream_window = 0
    with fake.piped(server) as pipeline:
        calls = [fake.submit(pipeline, PAIR) for _ in range(3)]
        assert all(call.done() for call in calls)
    assert server.unary == 3
    server.limits.stream_window = 4
    with fake.piped(server):
        pass  # it is not used, and opens no stream
    assert server.streams == 0


@BOTH_SENDERS
def test_without_a_server_a_call_is_computed_at_once() -> None:
    with npucall_client.connect("local:") as client, client.pipeline() as pipeline:
        call = pipeline.submit(l1_loss_backward, fake.ONE, np.full((), 2, np.float32), fake.ONE)
        assert call.done()
        assert call.result() == 1.0
        bad = pipeline.submit(
            l1_loss_backward, fake.ONE, np.ones(2, np.float32), np.ones(3, np.float32)
        )
        assert isinstance(bad.exception(), errors.ShapeError)
        assert list(pipeline.as_completed()) == [call, bad]
