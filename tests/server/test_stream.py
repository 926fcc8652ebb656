"""ExecuteStream: calls of all sizes, in any order, each with an answer of its own."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest

import npucall_client
from npucall.errors import DeviceLostError, TooLargeError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall_server.access.guard import OpenGuard
from npucall_server.execution import call as execution_of_calls
from npucall_server.handling import Handling
from npucall_server.log import Log
from npucall_server.peers import Peers

from .scripted import PATIENCE, ScriptedCaller, ScriptedDevice, until, waiting
from .streams import IDENTITY, INPUTS, call_of, info_of, serving, stream

if TYPE_CHECKING:
    from npucall_server.devices.base import Turn

KIB, MIB = 2**10, 2**20


class Gate:
    """A device whose calls run until the test lets one go."""

    def __init__(self, lanes: int = 1) -> None:
        self.running = 0
        self._tickets = threading.Semaphore(0)
        self.device = ScriptedDevice(self._run, lanes=lanes)

    def let_go(self, calls: int = 1) -> None:
        self._tickets.release(calls)

    def _run(self, turn: Turn) -> None:
        with turn():
            self.running += 1
            try:
                while not self._tickets.acquire(timeout=0.005):
                    turn.check()
            finally:
                self.running -= 1


def device_that_answers(size: int) -> ScriptedDevice:
    device = ScriptedDevice()
    device.result = bytes(range(256)) * (size // 256)
    return device


def test_a_call_in_one_frame_is_answered_in_one_frame() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(7)
        frame = peer.receive()
        assert (frame.call_id, frame.WhichOneof("frame")) == (7, "reply")
        assert [storage.data for storage in frame.reply.storage] == [b"result"]
        assert frame.reply.reply.server.instance == IDENTITY.instance


def test_a_call_in_chunks_reaches_the_device_as_it_was_sent() -> None:
    sent: dict[str, bytes] = {}

    class Device(ScriptedDevice):
        def run(self, call: Any, storages: Any, turn: Any, targets: Any) -> Any:
            sent.update({name: bytes(storage) for name, storage in storages.items()})
            return super().run(call, storages, turn)

    with serving(Device()) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=4)
        for index in (2, 0, 1):
            first, second = bytes([index]) * 10, bytes([index + 100]) * 6
            peer.chunk(1, index, 0, first)
            peer.chunk(1, index, 10, second)
        peer.end(1)
        assert peer.receive().WhichOneof("frame") == "reply"
    assert sent == {
        name: bytes([index]) * 10 + bytes([index + 100]) * 6 for index, name in enumerate(INPUTS)
    }


def test_a_call_in_chunks_without_bytes_needs_its_end_alone() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin_chunked(1, elements=0)
        peer.end(1)
        assert peer.receive().WhichOneof("frame") == "reply"


def test_an_answer_of_a_mebibyte_stands_in_its_frame() -> None:
    with serving(device_that_answers(MIB)) as served, stream(served) as peer:
        peer.begin(1)
        assert len(peer.receive().reply.storage[0].data) == MIB


def test_a_larger_answer_comes_in_chunks() -> None:
    device = device_that_answers(5 * MIB + 256)
    with serving(device) as served, stream(served) as peer:
        peer.begin(1)
        frame = peer.receive()
        assert frame.WhichOneof("frame") == "reply"
        assert len(frame.reply.storage) == 0
        chunks = [peer.receive().chunk for _ in range(3)]
        assert [chunk.offset for chunk in chunks] == [0, 2 * MIB, 4 * MIB]
        assert b"".join(chunk.data for chunk in chunks) == device.result
        assert peer.receive().WhichOneof("frame") == "end"


@pytest.mark.parametrize("chunk_bytes", [64 * KIB, 64 * KIB + 1, 3 * MIB])
def test_no_chunk_of_an_answer_is_longer_than_the_setting(chunk_bytes: int) -> None:
    device = device_that_answers(5 * MIB + 256)
    with serving(device, chunk_bytes=chunk_bytes) as served, stream(served) as peer:
        peer.begin(1)
        assert peer.receive().WhichOneof("frame") == "reply"
        frames = iter(peer.receive, pb.ExecuteStreamResponse(call_id=1, end=pb.End()))
        chunks = [frame.chunk for frame in frames]
    starts = list(range(0, len(device.result), chunk_bytes))
    assert [chunk.offset for chunk in chunks] == starts
    assert b"".join(chunk.data for chunk in chunks) == device.result


def test_chunks_may_be_longer_than_the_server_wishes() -> None:
    with serving(chunk_bytes=64 * KIB) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=MIB // 4)
        for index in range(3):
            peer.chunk(1, index, 0, bytes(MIB))
        peer.end(1)
        assert peer.receive().WhichOneof("frame") == "reply"


def test_answers_come_in_the_order_in_which_calls_finish() -> None:
    release = threading.Event()

    def run(turn: Turn) -> None:
        if first.acquire(blocking=False):
            release.wait(PATIENCE)

    first = threading.Semaphore(1)
    with serving(ScriptedDevice(run, lanes=2)) as served, stream(served) as peer:
        peer.begin(1)
        until(lambda: served.executor.calls_in_flight == 1, "the first one runs")
        until(lambda: first._value == 0, "it holds the device")
        peer.begin(2)
        assert peer.receive().call_id == 2
        release.set()
        assert peer.receive().call_id == 1


def test_chunks_of_several_calls_may_come_in_turn() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin_chunked(1)
        peer.begin_chunked(2)
        for index in range(3):
            peer.chunk(1, index, 0, bytes(8))
            peer.chunk(2, index, 0, bytes(8))
        peer.begin(3)
        assert peer.receive().call_id == 3
        peer.end(2)
        assert peer.receive().call_id == 2
        peer.end(1)
        assert peer.receive().call_id == 1


def test_a_stream_ends_well_when_nothing_more_comes_and_all_is_answered() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(1)
        peer.close()
        assert peer.receive().call_id == 1
        assert peer.end_of_stream() == "OK"


def test_a_call_that_is_refused_does_not_end_the_stream() -> None:
    with serving() as served, stream(served) as peer:
        request = pb.ExecuteRequest(call=call_of(2, "aclnnUnknown"))
        peer.send(1, begin=pb.Begin(request=request))
        assert peer.reason(1) == "OPERATOR_UNKNOWN"
        peer.begin(2)
        assert peer.receive().WhichOneof("frame") == "reply"


def test_an_error_says_what_execute_says() -> None:
    with serving() as served, stream(served) as peer:
        request = pb.ExecuteRequest(call=call_of(2))
        peer.send(1, begin=pb.Begin(request=request, request_id="mine"))
        info = info_of(peer.receive().error)
        assert (info.domain, info.reason) == ("npucall", "TENSOR_LAYOUT")
        assert info.metadata["request_id"] == "mine"
        assert info.metadata["soc"] == "Ascend910B1"


def test_storages_beside_chunks_are_refused() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(1, chunked=True)
        assert peer.reason(1) == "MESSAGE_MALFORMED"


def test_a_call_that_will_never_fit_is_refused_before_its_bytes_come() -> None:
    """What is sent for it all the same is passed over."""
    with serving(memory_limit=1000) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=100)
        assert peer.reason(1) == "TOO_LARGE"
        peer.chunk(1, 0, 0, bytes(400))
        peer.chunk(1, 7, 3, bytes(400))
        peer.end(1)
        peer.begin(2)
        assert peer.receive().call_id == 2


def test_a_call_has_its_room_from_its_first_frame_on() -> None:
    with serving(memory_limit=1000) as served, stream(served) as peer, stream(served) as other:
        peer.begin_chunked(1, elements=50)  # 800 bytes
        until(lambda: served.executor.bytes_in_flight == 800, "the first one has its room")
        other.begin(1, elements=50)
        assert other.reason(1) == "QUEUE_FULL"


def test_a_call_beyond_the_queue_is_refused() -> None:
    gate = Gate()
    with serving(gate.device, queue_length=1) as served, stream(served) as peer:
        peer.begin(1)
        peer.begin(2)
        until(lambda: served.executor.calls_in_flight == 2, "one runs, one waits")
        peer.begin(3)
        assert peer.reason(3) == "QUEUE_FULL"
        gate.let_go(2)
        assert [peer.receive().call_id, peer.receive().call_id] == [1, 2]


def test_no_more_calls_than_the_window_are_taken_in() -> None:
    gate = Gate()
    with serving(gate.device, stream_window=2) as served, stream(served) as peer:
        for call_id in (1, 2, 3):
            peer.begin(call_id)
        until(lambda: served.executor.calls_in_flight == 2, "two are taken in")
        gate.let_go()
        assert peer.receive().call_id == 1
        until(lambda: gate.running == 1 and waiting(served.executor) == 1, "the third one waits")
        gate.let_go(2)
        assert [peer.receive().call_id, peer.receive().call_id] == [2, 3]


def test_who_does_not_read_answers_keeps_their_room_and_the_window() -> None:
    """The answer is larger than what gRPC and the socket take without a reader."""
    device = device_that_answers(64 * MIB)
    with serving(device, stream_window=1) as served, stream(served) as peer:
        peer.begin(1)
        peer.begin(2)
        assert peer.receive().WhichOneof("frame") == "reply"
        assert served.executor.calls_in_flight == 1
        assert [line["event"] for line in served.lines()] == []
        while peer.receive().WhichOneof("frame") != "end":
            pass
        assert peer.receive().call_id == 2


def test_a_slow_reader_does_not_hold_up_other_streams() -> None:
    device = device_that_answers(64 * MIB)
    with serving(device) as served, stream(served) as slow, stream(served) as other:
        slow.begin(1)
        until(lambda: served.executor.calls_in_flight == 1, "the slow one is taken in")
        other.begin(1)
        assert other.receive().call_id == 1


def test_more_streams_than_allowed_are_refused() -> None:
    with serving(max_streams=1) as served, stream(served) as peer:
        peer.begin(1)
        peer.receive()
        with stream(served) as other:
            assert other.end_of_stream() == "QUEUE_FULL"
    (line,) = [line for line in served.lines() if line["reason"] == "QUEUE_FULL"]
    assert "max_streams = 1" in line["message"]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_deadline_ends_a_call_that_waits_or_whose_bytes_do_not_come(chunked: bool) -> None:
    gate = Gate()
    with serving(gate.device) as served, stream(served) as peer:
        begin = peer.begin_chunked if chunked else peer.begin
        begin(1, timeout_ns=50_000_000)
        assert peer.reason(1) == "DEADLINE"
        until(served.is_idle, "its room is free")


def test_the_deadline_of_the_stream_is_a_deadline_of_its_calls() -> None:
    gate = Gate()
    with serving(gate.device) as served, stream(served, timeout=0.3) as peer:
        peer.begin(1)
        peer.begin_chunked(2)
        assert peer.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        until(served.is_at_rest, "what was taken in has ended")


def test_the_servers_own_limit_ends_a_call_whose_bytes_do_not_come() -> None:
    with serving(peer_timeout=0.15) as served, stream(served) as peer:
        peer.begin_chunked(1)
        frame = peer.receive()
        info = info_of(frame.error)
        assert (info.reason, info.metadata["setting"]) == ("STALLED", "peer_timeout")


def test_bytes_that_come_slowly_end_no_call() -> None:
    pause = threading.Event()
    with serving(peer_timeout=1.5, call_timeout=0.1) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=2)
        for index in range(3):
            for offset in range(0, 8, 4):
                peer.chunk(1, index, offset, bytes(4))
                pause.wait(0.1)
        peer.end(1)
        assert peer.receive().WhichOneof("frame") == "reply"


def test_a_server_without_tenants_passes_a_renewed_credential_over() -> None:
    with serving() as served, stream(served) as peer:
        peer.renew("Bearer of a client that talks to other servers too")
        peer.begin(1)
        assert peer.receive().WhichOneof("frame") == "reply"


def test_who_leaves_while_a_message_is_being_sent_is_not_waited_for() -> None:
    """gRPC counts a call among those of its connection as long as anybody holds it."""
    with serving() as served:
        log = Log(stream=io.StringIO())
        peers = Peers(log, PATIENCE)
        handling = Handling(IDENTITY, log, peers, OpenGuard(), ())
        request = pb.ExecuteRequest(call=call_of(2))  # without its storages: it is refused
        message = pb.ExecuteStreamRequest(call_id=1, begin=pb.Begin(request=request))
        messages = iter([message.SerializeToString()])
        caller: Any = ScriptedCaller()
        caller.begins, caller.when_over = bool, caller.add_callback
        answers = served.streams.execute_stream(messages, caller, handling)
        assert next(answers)
        answers.close()  # type: ignore[attr-defined]  # a generator, which gRPC forgets
        until(lambda: not peers._waits, "nobody is waited for")


def test_each_call_has_a_log_line() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(1, request_id="mine")
        answer = peer.receive()
        peer.begin_chunked(2, elements=4)
        for index in range(3):
            peer.chunk(2, index, 0, bytes(16))
        peer.end(2)
        peer.receive()
        peer.send(3, begin=pb.Begin(request=pb.ExecuteRequest(call=call_of(1, "aclnnX"))))
        peer.receive()
        until(lambda: len(served.lines()) == 3, "three lines are written")
    first, second, third = served.lines()
    assert {line["method"] for line in served.lines()} == {"ExecuteStream"}
    assert first["request_id"] == "mine"
    assert first["operator"] == "aclnnL1LossBackward"
    assert first["response_bytes"] >= answer.ByteSize()  # zeros of timings are written out
    assert second["request_id"] == "0123456789ab-1"
    assert second["request_bytes"] > 48
    assert (first["reason"], third["reason"]) == ("OK", "OPERATOR_UNKNOWN")
    assert first["total_ns"] > 0


def test_timings_stand_in_the_answer() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(1)
        timings = peer.receive().reply.timings
        assert timings.check_ns > 0
        assert timings.run_ns > 0


def test_a_bug_is_an_error_of_its_call() -> None:
    def run(_: Turn) -> None:
        raise ZeroDivisionError("secret")

    with serving(ScriptedDevice(run)) as served, stream(served) as peer:
        peer.begin(1)
        frame = peer.receive()
        assert info_of(frame.error).reason == "INTERNAL"
        assert b"secret" not in frame.error
    assert "ZeroDivisionError: secret" in served.lines()[0]["traceback"]


def test_a_device_that_is_lost_is_an_error_of_every_call_that_waits_or_comes() -> None:
    gate = Gate()
    with serving(gate.device) as served, stream(served) as peer:
        peer.begin(1)
        peer.begin(2)
        until(lambda: waiting(served.executor) == 1, "one runs, one waits")
        served.executor.lose(lambda: DeviceLostError("lost"))
        assert {peer.reason_of_any(), peer.reason_of_any()} == {"DEVICE_LOST"}
        peer.begin(3)
        assert peer.reason(3) == "DEVICE_LOST"


def test_a_server_that_drains_answers_what_it_has_and_ends_the_stream() -> None:
    gate = Gate()
    with serving(gate.device) as served, stream(served) as peer:
        peer.begin(1)
        until(lambda: gate.running == 1, "it runs")
        served.executor.drain()
        served.streams.drain()
        peer.begin(2)
        assert peer.reason(2) == "DRAINING"
        gate.let_go()
        assert peer.receive().call_id == 1
        assert peer.end_of_stream() == "DRAINING"


def test_a_server_that_drains_takes_the_bytes_of_calls_that_it_has() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin_chunked(1)
        until(lambda: served.executor.calls_in_flight == 1, "it has its room")
        served.executor.drain()
        served.streams.drain()
        for index in range(3):
            peer.chunk(1, index, 0, bytes(8))
        peer.end(1)
        assert peer.receive().call_id == 1
        assert peer.end_of_stream() == "DRAINING"


def test_a_server_that_drains_ends_idle_streams_and_opens_none() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(1)
        peer.receive()
        served.streams.drain()
        assert peer.end_of_stream() == "DRAINING"
        with stream(served) as other:
            assert other.end_of_stream() == "DRAINING"


def test_an_answer_that_no_message_holds_is_fetched_in_a_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execution_of_calls, "MAX_ANSWER_BYTES", 4095)
    device, array = device_that_answers(4096), np.ones(1024, np.float32)
    with serving(device) as served, npucall_client.connect(served.target) as client:
        out = client.run(l1_loss_backward, array, array, array)
        lines = [line for line in served.lines() if line["method"].startswith("Execute")]
    assert out.tobytes() == device.result
    outcomes = [(line["method"], line["reason"]) for line in lines]
    assert outcomes == [("Execute", "TOO_LARGE"), ("ExecuteStream", "OK")]


@pytest.mark.parametrize("settings", [{"memory_limit": 12_000}, {"max_streams": 0}], ids=str)
def test_no_error_names_a_stream_that_would_refuse_the_same_call(
    settings: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_of_calls, "MAX_ANSWER_BYTES", 4095)
    array = np.ones(1024, np.float32)
    with (
        serving(device_that_answers(4096), **settings) as served,
        npucall_client.connect(served.target) as client,
        pytest.raises(TooLargeError) as caught,
    ):
        client.run(l1_loss_backward, array, array, array)
    assert "method" not in caught.value.details
    assert "ExecuteStream" not in str(caught.value)


def test_a_server_without_streams_says_so_and_its_clients_open_none() -> None:
    """Large calls and pipelines were refused for ever, by an error that said to come later."""
    large = np.ones(2 * MIB, np.float32)
    with (
        serving(
            device_that_answers(large.nbytes), max_streams=0, max_message_bytes="32MiB"
        ) as served,
        npucall_client.connect(served.target) as client,
    ):
        assert client.server_info().limits.stream_window == 0
        client.run(l1_loss_backward, large, large, large)
        with client.pipeline() as pipeline:
            pipeline.submit(l1_loss_backward, large, large, large).result(PATIENCE)
