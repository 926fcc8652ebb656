"""ExecuteStream: calls of all sizes, in any order, each with an answer of its own."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from tests.server.fakes import (
    INPUTS,
    PATIENCE,
    BlockingDevice,
    FakeCaller,
    FakeDevice,
    device_that_answers,
    until,
    waiting,
)
from tests.server.raw import MANY, RawStream, call_of, info_of, stream
from tests.server.serving import Served, record, serving

import npucall_client
from npucall.errors import DeviceLostError
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall.v1 import operator_service_pb2 as pb
from npucall_server.calls import answers
from npucall_server.carriers.multiplex import stream as stream_of_calls
from npucall_server.devices.base import DeviceTurn
from npucall_server.scheduling import call_turn

KIB, MIB = 2**10, 2**20


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.fixture
def peer(shared: Served) -> Iterator[RawStream]:
    """On a server of which a test does not look at more than its answers."""
    with stream(shared) as peer:
        yield peer


def test_a_call_in_one_frame_is_answered_in_one_frame(shared: Served, peer: RawStream) -> None:
    peer.begin(7)
    frame = peer.receive()
    assert (frame.call_id, frame.WhichOneof("frame")) == (7, "reply")
    assert [storage.data for storage in frame.reply.storage] == [b"result"]
    assert frame.reply.reply.server.instance == shared.core.identity.instance
    assert frame.reply.timings.check_ns > 0
    assert frame.reply.timings.run_ns > 0


@pytest.mark.parametrize("elements", [0, 4])
def test_a_call_in_chunks_reaches_the_device_as_it_was_sent(elements: int) -> None:
    sent: dict[str, bytes] = {}

    class Device(FakeDevice):
        def run(self, steps: Any, turn: Any, pieces: Any = None) -> Any:
            sent.update({name: bytes(storage) for name, storage in steps[0].storages.items()})
            return super().run(steps, turn, pieces)

    data = [(bytes([index]) * 10 + bytes([index + 100]) * 6)[: 4 * elements] for index in range(3)]
    with serving(Device()) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=elements)
        for index in (2, 0, 1) if elements else ():
            peer.chunk(1, index, 0, data[index][:10])
            peer.chunk(1, index, 10, data[index][10:])
        peer.end(1)
        assert peer.kinds(1) == ["reply"]
    assert sent == dict(zip(INPUTS, data, strict=True))


@pytest.mark.parametrize("chunk_bytes", [None, 64 * KIB, 64 * KIB + 1, 3 * MIB])
def test_an_answer_beyond_a_mebibyte_comes_in_chunks_as_long_as_the_setting(
    chunk_bytes: int | None,
) -> None:
    settings: Any = {} if chunk_bytes is None else {"chunk_bytes": chunk_bytes}
    device = device_that_answers(MIB)
    with serving(device, **settings) as served, stream(served) as peer:
        peer.begin(1)
        assert len(peer.receive().reply.storage[0].data) == MIB
        device.result = data = bytes(range(256)) * (5 * MIB // 256 + 1)
        peer.begin(2)
        frame = peer.receive()
        assert (frame.WhichOneof("frame"), len(frame.reply.storage)) == ("reply", 0)
        end = pb.ExecuteStreamResponse(call_id=2, end=pb.End())
        chunks = [frame.chunk for frame in iter(peer.receive, end)]
    starts = list(range(0, len(data), chunk_bytes or 2 * MIB))
    assert [chunk.offset for chunk in chunks] == starts
    assert b"".join(chunk.data for chunk in chunks) == data


def test_chunks_may_be_longer_than_the_server_wishes() -> None:
    with serving(chunk_bytes=64 * KIB) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=MIB // 4)
        peer.chunks(1, MIB)
        assert peer.kinds(1) == ["reply"]


def test_a_server_without_tenants_passes_a_renewed_credential_over(peer: RawStream) -> None:
    with peer.one_message():
        peer.begin(1)
        peer.renew("Bearer of a client that talks to other servers too")
        peer.begin(2)
    assert sorted(peer.ids(2)) == [1, 2]


def test_a_call_that_will_never_fit_is_refused_before_its_bytes_come() -> None:
    """What is sent for it all the same is passed over."""
    with serving(memory_limit=1000) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=100)
        assert peer.reason(1) == "TOO_LARGE"
        peer.chunk(1, 7, 3, bytes(400))
        peer.chunks(1, 400)
        peer.begin(2)
        assert peer.ids(1) == [2]


def test_a_call_has_its_room_from_its_first_frame_on() -> None:
    with serving(memory_limit=1000) as served, stream(served) as peer, stream(served) as other:
        peer.begin_chunked(1, elements=50)  # 800 bytes
        until(lambda: served.executor.bytes_in_flight == 800, "the first one has its room")
        other.begin(1, elements=50)
        assert other.reason(1) == "QUEUE_FULL"


def test_more_streams_than_allowed_are_refused() -> None:
    with serving(max_streams=1) as served, stream(served) as peer:
        peer.begin(1)
        peer.receive()
        with stream(served) as other:
            assert other.end_of_stream() == "QUEUE_FULL"
    (line,) = [line for line in served.events("call") if line["reason"] == "QUEUE_FULL"]
    assert "max_streams = 1" in line["message"]


def test_no_more_calls_than_the_window_are_taken_in_however_many_a_message_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_of_calls, "STREAM_WINDOW", 2)
    device = BlockingDevice()
    with serving(device) as served, stream(served, metadata=MANY) as peer:
        with peer.one_message():
            for call_id in range(1, 20):
                peer.begin(call_id)
        until(lambda: served.executor.calls_in_flight == 2, "two are taken in")
        device.let_go()
        first = peer.ids(1)
        until(lambda: device.running == 1 and waiting(served.executor) == 1, "a third one waits")
        assert served.executor.calls_in_flight == 2
        device.let_all_go()
        assert sorted(first + peer.ids(18)) == list(range(1, 20))


@pytest.mark.parametrize("window", [1, 2])
def test_who_does_not_read_answers_keeps_their_room_and_the_window(
    window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is larger than what gRPC and the socket take without a reader."""
    monkeypatch.setattr(stream_of_calls, "STREAM_WINDOW", window)
    device = device_that_answers(64 * MIB)
    with serving(device) as served, stream(served, metadata=MANY) as peer:
        with peer.one_message():
            peer.begin(1)
            peer.begin(2)
        assert peer.kinds(1) == ["reply"]
        until(lambda: served.executor.calls_in_flight == window, "all have their room")
        assert served.events("call") == []
        with stream(served) as other:  # a slow reader does not hold up other streams
            other.begin(1)
            assert other.ids(1) == [1]
        ends = 0
        while ends < 2:
            frame = peer.receive()
            ends += frame.WhichOneof("frame") == "end"
        assert window == 2 or frame.call_id == 2


@pytest.mark.parametrize("chunked", [False, True])
def test_a_deadline_ends_a_call_that_waits_or_whose_bytes_do_not_come(chunked: bool) -> None:
    with serving(BlockingDevice(checks=True)) as served, stream(served) as peer:
        begin = peer.begin_chunked if chunked else peer.begin
        begin(1, timeout_ns=50_000_000)
        assert peer.reason(1) == "DEADLINE"
        until(served.is_idle, "its room is free")


def test_the_deadline_of_the_stream_is_a_deadline_of_its_calls() -> None:
    with serving(BlockingDevice(checks=True)) as served, stream(served, timeout=0.3) as peer:
        peer.begin(1)
        peer.begin_chunked(2)
        assert peer.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        until(served.is_at_rest, "what was taken in has ended")


def test_the_servers_own_limit_ends_a_call_whose_bytes_do_not_come() -> None:
    with serving(peer_timeout=0.15) as served, stream(served) as peer:
        peer.begin_chunked(1)
        info = peer.error(1)
        assert (info.reason, info.metadata["setting"]) == ("STALLED", "peer_timeout")


def test_time_in_which_bytes_come_is_none_of_the_limit_of_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = FakeDevice(lambda turn: turn.check())
    settings: Any = {"call_timeout": 100, "peer_timeout": 1000}
    with serving(device, **settings) as served, stream(served) as peer:
        watch = SimpleNamespace(monotonic=served.clock.monotonic)
        monkeypatch.setattr(call_turn, "time", watch)
        peer.begin_chunked(1)
        until(lambda: served.executor.calls_in_flight == 1, "it is taken in")
        served.clock.advance(101)  # more than its limit
        peer.chunks(1)
        assert peer.kinds(1) == ["reply"]


def test_each_call_has_a_log_line() -> None:
    with serving() as served, stream(served) as peer:
        peer.begin(1, request_id="mine")
        answer = peer.receive()
        peer.begin_chunked(2, elements=4)
        peer.chunks(2, 16)
        peer.receive()
        peer.send(3, begin=pb.Begin(request=pb.ExecuteRequest(call=call_of(1, "aclnnX"))))
        peer.receive()
        until(lambda: len(served.lines()) == 3, "three lines are written")
        first, second, third = served.lines()
    assert {line["method"] for line in (first, second, third)} == {"ExecuteStream"}
    assert first["request_id"] == "mine"
    assert first["operator"] == "aclnnL1LossBackward"
    assert first["response_bytes"] >= answer.ByteSize()  # zeros of timings are written out
    assert second["request_id"] == f"{served.core.identity.instance}-2"  # the stream is the first
    assert second["request_bytes"] > 48
    assert (first["reason"], third["reason"]) == ("OK", "OPERATOR_UNKNOWN")
    assert first["total_ns"] > 0


def test_a_bug_is_an_error_of_its_call() -> None:
    def run(_: DeviceTurn) -> None:
        raise ZeroDivisionError("secret")

    with serving(FakeDevice(run)) as served, stream(served) as peer:
        peer.begin(1)
        frame = peer.receive()
        assert info_of(frame.error).reason == "INTERNAL"
        assert b"secret" not in frame.error
    assert "ZeroDivisionError: secret" in served.lines()[0]["traceback"]


def test_who_leaves_while_a_message_is_being_sent_is_not_waited_for(shared: Served) -> None:
    """gRPC counts a call among those of its connection as long as anybody holds it."""
    request = pb.ExecuteRequest(call=call_of(2))  # without its storages: it is refused
    message = pb.ExecuteStreamRequest(call_id=1, begin=pb.Begin(request=request))
    caller: Any = FakeCaller()
    messages = iter([message.SerializeToString()])
    answers = shared.core.peers.read(
        shared.streams.execute_stream(messages, record(), caller), caller
    )
    assert next(answers)
    answers.close()  # type: ignore[attr-defined]  # a generator, which gRPC forgets
    until(lambda: not shared.streams._streams, "the stream has ended")


def test_a_device_that_is_lost_is_an_error_of_every_call_that_waits_or_comes() -> None:
    with serving(BlockingDevice(checks=True)) as served, stream(served) as peer:
        peer.begin(1)
        peer.begin(2)
        until(lambda: waiting(served.executor) == 1, "one runs, one waits")
        served.executor.lose(lambda: DeviceLostError("lost"))
        assert peer.reasons(2) == {1: "DEVICE_LOST", 2: "DEVICE_LOST"}
        peer.begin(3)
        assert peer.reason(3) == "DEVICE_LOST"


def test_a_server_that_drains_answers_what_it_has_and_ends_the_stream() -> None:
    """Calls of one message, one that waits for bytes, and none that comes."""
    device = BlockingDevice()
    with serving(device) as served, stream(served, metadata=MANY) as peer:
        with peer.one_message():
            peer.begin(1)
            peer.begin(2)
            peer.begin_chunked(3)
        until(lambda: served.executor.calls_in_flight == 3, "they are taken in")
        served.drain()
        peer.begin(4)
        assert peer.reason(4) == "DRAINING"
        device.let_go(3)
        assert sorted(peer.ids(2)) == [1, 2]
        peer.chunks(3)
        assert peer.ids(1) == [3]
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
    monkeypatch.setattr(answers, "MAX_ANSWER_BYTES", 4095)
    device, array = device_that_answers(4096), np.ones(1024, np.float32)
    with serving(device) as served, npucall_client.connect(served.target) as client:
        out = client.run(l1_loss_backward, array, array, array)
        lines = [line for line in served.lines() if line["method"].startswith("Execute")]
    assert out.tobytes() == device.result
    outcomes = [(line["method"], line["reason"]) for line in lines]
    assert outcomes == [("Execute", "TOO_LARGE"), ("ExecuteStream", "OK")]


def test_a_server_without_streams_says_so_and_its_clients_open_none() -> None:
    """Large calls and pipelines were refused for ever, by an error that said to come later."""
    large = np.ones(2 * MIB, np.float32)
    device = device_that_answers(large.nbytes)
    with (
        serving(device, max_streams=0, max_message_bytes="32MiB") as served,
        npucall_client.connect(served.target) as client,
    ):
        assert client.server_info().limits.stream_window == 0
        client.run(l1_loss_backward, large, large, large)
        with client.pipeline() as pipeline:
            pipeline.submit(l1_loss_backward, large, large, large).result(PATIENCE)
