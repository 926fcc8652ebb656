"""ExecuteStream on a connection of frames."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.fakes import BlockingDevice, FakeDevice, device_that_answers, until
from tests.server.serving import Served

from npucall.v1 import operator_service_pb2 as pb

from .peer import EXECUTE, HEADER, STREAM, StreamPeer, connected, framed, packed, request

MIB = 2**20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with framed(tmp_path_factory.mktemp("f")) as served:
        yield served


@contextmanager
def stream(served: Served, **metadata: str) -> Iterator[StreamPeer]:
    with connected(served) as peer:
        yield StreamPeer(peer, **metadata)


def test_calls_of_all_kinds_are_answered_and_the_stream_ends_as_it_was_ended(
    shared: Served,
) -> None:
    with stream(shared) as peer:
        peer.begin(1)
        peer.begin_chunked(2)
        peer.chunks(2)
        peer.send(3, program=pb.BeginProgram(request=pb.ExecuteProgramRequest()))
        peer.begin(4)
        peer.close()
        found, reason = peer.answers()
    kinds = {call: [each.WhichOneof("frame") for each in frames] for call, frames in found.items()}
    assert kinds == {1: ["reply"], 2: ["reply"], 3: ["error"], 4: ["reply"]}
    assert reason == "OK"


def test_chunks_of_any_length_reach_the_device(tmp_path: Path) -> None:
    sent: list[bytes] = []

    class Device(FakeDevice):
        def run(self, steps: Any, turn: Any, pieces: Any = None) -> Any:
            sent.extend(bytes(each) for each in steps[0].storages.values())
            return super().run(steps, turn, pieces)

    data = bytes(range(256)) * (3 * MIB // 256)
    with framed(tmp_path, Device()) as served, stream(served) as peer:
        peer.begin_chunked(1, elements=3 * MIB // 4)
        for storage in range(3):
            for start, end in ((0, 5000), (5000, 2 * MIB), (2 * MIB, 3 * MIB)):
                peer.chunk(1, storage, start, data[start:end])
        peer.end(1)
        assert peer.kinds(1) == ["reply"]
    assert sent == [data] * 3


def test_a_large_answer_comes_in_chunks(tmp_path: Path) -> None:
    with framed(tmp_path, device_that_answers(5 * MIB)) as served, stream(served) as peer:
        peer.begin(1)
        peer.close()
        found, reason = peer.answers()
        assert reason == "OK"
    chunks = [each.chunk.data for each in found[1] if each.WhichOneof("frame") == "chunk"]
    assert b"".join(chunks) == served.device.result


def test_messages_carry_many_frames(shared: Served) -> None:
    with stream(shared) as peer:
        with peer.one_message():
            for call in range(20):
                peer.begin(call)
        assert sorted(peer.ids(20)) == list(range(20))


NO_CALL = pb.ExecuteStreamRequest(call_id=5, end=pb.End()).SerializeToString()
ENDS = {
    "a frame of no call": (packed(STREAM, NO_CALL), "MESSAGE_MALFORMED"),
    "no message": (packed(STREAM, b"\xff"), "MESSAGE_MALFORMED"),
    "a frame of another kind": (packed(EXECUTE, request(), 1), "MESSAGE_MALFORMED"),
    "too much": (HEADER.pack(2**32 - 1, 0, STREAM, 0, 0, 0), "TOO_LARGE"),
}


@pytest.mark.parametrize("what", ENDS)
def test_what_ends_a_stream_ends_the_connection_with_its_error(shared: Served, what: str) -> None:
    data, reason = ENDS[what]
    with stream(shared) as peer:
        peer.begin(1)
        assert peer.kinds(1) == ["reply"]
        peer.peer.socket.sendall(data)
        assert peer.end_of_stream() == reason


@pytest.mark.parametrize("closes", [False, True])
def test_the_calls_of_a_stream_whose_peer_has_gone_end(tmp_path: Path, *, closes: bool) -> None:
    device = BlockingDevice(checks=True)
    with framed(tmp_path, device) as served:
        with stream(served) as peer:
            for call in range(3):
                peer.begin(call)
            until(lambda: device.running, "one runs")
            if closes:
                peer.close()
        until(lambda: served.look() or served.is_at_rest(), "all have ended")


def test_a_draining_server_ends_the_stream(tmp_path: Path) -> None:
    with framed(tmp_path) as served, stream(served) as peer:
        peer.begin(1)
        assert peer.kinds(1) == ["reply"]
        served.drain()
        assert peer.end_of_stream() == "DRAINING"


def test_the_metadata_of_the_stream_is_that_of_its_calls(shared: Served) -> None:
    with stream(shared, reservation="no key") as peer:
        peer.begin(1)
        assert peer.reason(1) == "RESERVED"


def test_another_spelling_of_a_large_message_is_read_too(shared: Served) -> None:
    """It goes by the class, which takes no views."""
    call = pb.ExecuteRequest.FromString(request(10_000))
    programs = pb.ExecuteProgramRequest(steps=[call])
    unknown = b"\x82\x7d\x01x"
    with connected(shared) as peer:
        for kind, message in ((EXECUTE, call), (5, programs)):
            peer.send(kind, message.SerializeToString() + unknown, 1)
            assert peer.receive().kind == 7
    with stream(shared) as peer_stream:
        begin = pb.ExecuteStreamRequest(call_id=1, begin=pb.Begin(request=call))
        peer_stream.send_bytes(begin.SerializeToString() + unknown)
        assert peer_stream.kinds(1) == ["reply"]


def test_a_stream_has_a_place_of_its_own(tmp_path: Path) -> None:
    with framed(tmp_path, max_streams=0) as served, stream(served) as peer:
        peer.begin(1)
        assert peer.end_of_stream() == "QUEUE_FULL"
