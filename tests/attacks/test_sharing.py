"""Sharing: no connection holds more than half of places, streams or bytes while others ask."""

import time
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from tests.end_to_end import wire

from npucall.v1 import operator_service_pb2 as pb

from . import attacks, requests
from .attacks import Attack, endings
from .clients import health_of, polite
from .http2 import LONG, SERVICE, connected, message, over, pump
from .servers import MIB, AttackedServer, Start

pytestmark = pytest.mark.long

UNDER_ATTACK = 12.0

HOLDS: dict[str, Callable[[AttackedServer], Attack]] = {
    "a begin that claims all memory": lambda server: attacks.a_claim_on_everything(
        server.target, server.limit
    ),
    "3 streams of answers unread": lambda server: attacks.streams_that_do_not_read(
        server.target, server.limit // 200
    ),
    "64 idle streams": lambda server: attacks.frames(server.target, 64),
    "66 calls without their bytes": lambda server: attacks.calls_without_bytes(server.target),
}


@pytest.mark.parametrize("hold", HOLDS)
def test_one_connection_keeps_nobody_out(start: Start, hold: str) -> None:
    """Polite callers send small calls, and large ones on streams of their own."""
    with start() as server, polite(server.target, "large") as seen:
        with HOLDS[hold](server) as made:
            server.note("calls and bytes in flight: {}, {}".format(*server.in_flight()))
            pump(made, UNDER_ATTACK)
            beside = seen()
        server.note(beside)
        assert beside.all_served


@pytest.mark.parametrize("hold", HOLDS)
def test_what_makes_no_progress_is_given_back(start: Start, hold: str) -> None:
    """The connection lives on, and answers pings."""
    with start() as server, HOLDS[hold](server) as made:
        begun = time.monotonic()
        pump(made, LONG, over)
        server.note(f"{time.monotonic() - begun:.0f} s", endings(made))
        assert over(made)
        assert server.seconds_until_idle(LONG) < LONG


def test_a_peer_that_was_stopped_loses_its_room(start: Start) -> None:
    """Its kernel acknowledges what comes; it neither reads nor answers a ping."""
    with start() as server:
        with attacks.streams_that_do_not_read(server.target, server.limit // 200):
            calls, _ = server.in_flight()
            seconds = server.seconds_until_idle(LONG)
        server.note(f"{calls} calls", f"given back after {seconds:.0f} s")
        assert calls > 0
        assert seconds < LONG


def test_idle_connections_leave_descriptors_for_others(start: Start) -> None:
    with start(descriptors=256) as server, attacks.idle_connections(server.target, 400) as made:
        assert [health_of(server.target) for _ in range(10)] == ["SERVING"] * 10
        assert "256 need 1024 files" in server.log.read_text()
        server.note(endings(made), f"{server.descriptors()} descriptors")


# --- What is slow but honest is not cut -----------------------------------------------------------

NUMBERS = np.ones(3 * MIB, np.float32)
ONE = np.float32(1).tobytes()


def slow_call(pause: float) -> Iterator[bytes]:
    """The frames of one call whose bytes come a MiB at a time, with pauses."""
    arguments = [
        wire.tensor("grad_output"),
        wire.tensor("self", NUMBERS.size),
        wire.tensor("target"),
    ]
    call = pb.ExecuteRequest(call=pb.Call(operator=requests.L1, arguments=arguments))
    begin = pb.Begin(request=call, chunked=True)
    yield pb.ExecuteStreamRequest(call_id=1, begin=begin).SerializeToString()
    data = NUMBERS.tobytes()
    chunks = [pb.Chunk(storage=0, data=ONE), pb.Chunk(storage=2, data=ONE)]
    chunks += [
        pb.Chunk(storage=1, offset=at, data=data[at : at + MIB]) for at in range(0, len(data), MIB)
    ]
    for chunk in chunks:
        yield pb.ExecuteStreamRequest(call_id=1, chunk=chunk).SerializeToString()
        time.sleep(pause)
    yield pb.ExecuteStreamRequest(call_id=1, end=pb.End()).SerializeToString()


def test_a_call_that_is_sent_for_longer_than_call_timeout_is_answered(start: Start) -> None:
    """14 s of sending, call_timeout 5 s."""
    with (
        start("--call-timeout=5", limit=1024 * MIB) as server,
        wire.bare_channel(server.target) as channel,
    ):
        stream = channel.stream_stream(f"{SERVICE}ExecuteStream")
        received, end = 0, "no answer"
        try:
            for frame in stream(slow_call(1.0), timeout=60):
                answer = pb.ExecuteStreamResponse.FromString(frame)
                received += len(answer.chunk.data)
                end = answer.WhichOneof("frame")
        except grpc.RpcError as error:
            end = error.code().name
    assert (received, end) == (NUMBERS.nbytes, "end")


@pytest.mark.parametrize("method", ["Execute", "ExecuteStream"])
def test_an_answer_that_is_read_for_longer_than_any_timeout_comes_whole(
    start: Start, method: str
) -> None:
    """40 s of reading, a part every two seconds; call_timeout 5 s."""
    size, parts = 7 * MIB, 20
    request = requests.large_answer(size)
    body = request if method == "Execute" else requests.begun(1, request)
    with start("--call-timeout=5") as server, connected(server.target, window=65536) as (hand,):
        call = hand.call(method, *message(body))
        for _ in range(parts):
            pump([hand], 2, over)
            hand.allow(call, size // parts + 1024)
        pump([hand], LONG, over)
        assert hand.received[call] >= size
        assert hand.ended == {call: "0"}
