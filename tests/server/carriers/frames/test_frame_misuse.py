"""Peers that break the contract of frames, or stop in the middle: nobody else notices."""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.server.fakes import BlockingDevice, FakeDevice, device_that_answers, until
from tests.summary import figures

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2
from npucall_server.carriers.frames import frame_service
from npucall_server.carriers.frames.incoming import BUFFER_BYTES

from .peer import (
    ALIVE,
    CANCEL,
    CREDENTIAL,
    ERROR,
    EXECUTE,
    HEADER,
    HELLO,
    MEMORY,
    PROGRAM,
    RESPONSE,
    STREAM,
    WELCOME,
    FramePeer,
    QuickDevice,
    connected,
    framed,
    packed,
    request,
)

if TYPE_CHECKING:
    from tests.server.serving import Served

MIB = 2**20


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with framed(tmp_path_factory.mktemp("f"), QuickDevice()) as served:
        yield served


def connections(served: Served) -> int:
    return len(served.parts.methods.frames._connections)


def idle(served: Served) -> list[float]:
    found = served.parts.methods.frames._connections
    return [each.place.idle_since for each in found if each.place and each.place.idle_since]


def path_of(served: Served) -> str:
    return str(served.settings.frames_socket)


# --- Frames that end the connection ---------------------------------------------------------------

FIRST = {
    "a call": (packed(EXECUTE, request(), 1), "MESSAGE_MALFORMED"),
    "no frame": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "MESSAGE_MALFORMED"),
    "a credential that is too long": (
        HEADER.pack(16 * 2**10 + 1, 0, CREDENTIAL, 0, 0, 0),
        "MESSAGE_MALFORMED",
    ),
    "no credential": (packed(CREDENTIAL, b"\xff"), "MESSAGE_MALFORMED"),
    "more metadata than frame": (HEADER.pack(0, 0, CREDENTIAL, 0, 1, 0), "MESSAGE_MALFORMED"),
}


@pytest.mark.parametrize("what", FIRST)
def test_a_stranger_who_says_something_else_first_is_sent_away(shared: Served, what: str) -> None:
    data, reason = FIRST[what]
    with FramePeer(path_of(shared)) as peer:
        peer.hello()
        peer.socket.sendall(data)
        frame = peer.receive()
        assert (frame.kind, frame.call, frame.reason) == (ERROR, 0, reason)
        assert peer.is_closed()


LATER = {
    "an unknown kind": (packed(99, call=1), "MESSAGE_MALFORMED"),
    "a kind of the server": (packed(HELLO), "MESSAGE_MALFORMED"),
    "no number of a call": (packed(EXECUTE, request(), 0), "MESSAGE_MALFORMED"),
    "more than a message may have": (
        HEADER.pack(2**32 - 1, 1, EXECUTE, 0, 0, 0),
        "TOO_LARGE",
    ),
    "more metadata than frame": (HEADER.pack(4, 1, EXECUTE, 0, 5, 0), "MESSAGE_MALFORMED"),
    "more metadata than may be": (
        HEADER.pack(2**16, 1, EXECUTE, 0, 2**13 + 1, 0),
        "MESSAGE_MALFORMED",
    ),
    "metadata that is none": (HEADER.pack(1, 1, EXECUTE, 0, 1, 0) + b"\xff", "MESSAGE_MALFORMED"),
    "a request for memory that is too long": (packed(MEMORY, bytes(8193), 1), "MESSAGE_MALFORMED"),
    "a request for memory with metadata": (
        packed(MEMORY, b"\x08\x01", 1, request_id="x"),
        "MESSAGE_MALFORMED",
    ),
}


@pytest.mark.parametrize("what", LATER)
def test_a_frame_that_breaks_the_contract_ends_the_connection(shared: Served, what: str) -> None:
    data, reason = LATER[what]
    with connected(shared) as peer:
        peer.socket.sendall(packed(EXECUTE, request(), 1) + data)
        assert peer.receive().response  # what was answered before comes all the same
        frame = peer.receive()
        assert (frame.kind, frame.call, frame.reason) == (ERROR, 0, reason)
        assert peer.is_closed()


def test_a_number_is_free_again_once_its_call_is_answered(tmp_path: Path) -> None:
    device = BlockingDevice(checks=True)
    with framed(tmp_path, device) as served:
        with connected(served) as peer:
            peer.execute(1)
            until(lambda: device.running, "it runs")
            peer.execute(1)
            assert peer.reason() == "MESSAGE_MALFORMED"
            assert peer.is_closed()
        device.let_all_go()
        with connected(served) as peer:
            for _ in range(2):
                peer.execute(1)
                assert peer.receive().response


SIZES = {
    "too short": ([8, 8, 7], "TENSOR_LAYOUT"),
    "too long": ([8, 9, 8], "TENSOR_LAYOUT"),
    "none": ([8, 8, 0], "TENSOR_LAYOUT"),
    "a part that the next one has": ([8, 4, 12], "TENSOR_LAYOUT"),
    "one is missing": ([8, 8], "TENSOR_LAYOUT"),
    "one more": ([8, 8, 8, 8], "TENSOR_LAYOUT"),
}


@pytest.mark.parametrize("what", SIZES)
def test_a_known_call_with_arrays_of_other_sizes_is_refused(shared: Served, what: str) -> None:
    sizes, reason = SIZES[what]
    known = pb.ExecuteRequest.FromString(request())
    storage = [tensor_pb2.Storage(data=bytes(size)) for size in sizes]
    other = pb.ExecuteRequest(call=known.call, storage=storage)
    with connected(shared) as peer:
        for number, message in enumerate((request(), request(), other.SerializeToString()), 1):
            peer.send(EXECUTE, message, number)
        assert [peer.receive().kind for _ in range(2)] == [RESPONSE] * 2
        assert peer.reason() == reason
        peer.execute(4)
        assert peer.receive().response


def test_a_known_call_that_lies_about_the_length_of_an_array_is_refused(shared: Served) -> None:
    message = request()
    assert message[-10:-8] == b"\x7a\x08"  # the last array: its tag, and 8 bytes
    with connected(shared) as peer:
        for number, length in enumerate((7, 9, 127), 1):
            peer.send(EXECUTE, message[:-9] + bytes([length]) + message[-8:], number)
            assert peer.reason() == "MESSAGE_MALFORMED"


def begun(served: Served, of: bytes) -> FramePeer:
    """A peer that has sent the begin of a frame, and the server has read all of it."""
    peer = FramePeer(path_of(served))
    peer.enter()
    (connection,) = served.parts.methods.frames._connections
    all_of_it = connection._incoming.count + len(of)
    peer.socket.sendall(of)
    until(lambda: connection._incoming.count == all_of_it, "it has been read")
    until(lambda: connection.awaited, "more is awaited")
    return peer


PARTS = {
    "a part of a header": (packed(EXECUTE, request(), 1)[:15], 30.0),
    "a part of a message": (packed(EXECUTE, request(), 1)[:-1], 30.0),
    # It holds room that others may want.
    "a part of a large message": (packed(EXECUTE, request(MIB), 1)[: 2 * MIB], 10.0),
}
"""What has come, and how many seconds the rest may take."""


@pytest.mark.parametrize("what", PARTS)
def test_a_peer_that_stops_within_a_frame_is_cut(tmp_path: Path, what: str) -> None:
    sent, seconds = PARTS[what]
    with framed(tmp_path) as served, begun(served, sent) as peer:
        served.clock.advance(seconds - 0.1)
        served.look()
        assert not served.events("cut")
        served.clock.advance(0.2)
        served.look()
        assert peer.is_closed()
        until(lambda: not served.parts.methods.services.call_room.used, "its room is free")
    assert served.events("cut")


def test_a_long_message_takes_the_room_of_several(tmp_path: Path) -> None:
    whole = packed(EXECUTE, request(3 * MIB), 1)  # 36 MiB
    with (
        framed(tmp_path, memory_limit=4 * 2**30) as served,
        begun(served, whole[:MIB]) as peer,
    ):
        room = served.parts.methods.services.call_room
        assert room.used == 3
        peer.socket.sendall(whole[MIB:])
        assert peer.receive().response
        assert room.used == 0


def test_a_byte_a_second_is_no_progress(tmp_path: Path) -> None:
    whole = packed(EXECUTE, request(MIB), 1)
    with framed(tmp_path) as served, begun(served, whole[:MIB]) as peer:
        for second in range(30):
            peer.socket.sendall(whole[MIB + second : MIB + second + 1])
            served.clock.advance(1.0)
            served.look()
            if served.events("cut"):
                break
        assert peer.is_closed()


def test_a_message_that_trickles_in_gives_way_to_who_asks_for_its_room(tmp_path: Path) -> None:
    whole = packed(EXECUTE, request(MIB), 1)
    with (
        framed(tmp_path) as served,
        begun(served, whole[:MIB]) as slow,
        connected(served) as other,
    ):
        served.core.peers.finished["others"] = 0
        room = served.parts.methods.services.call_room
        rest = room.hold("others", room.limit - room.used)
        other.execute(1, elements=10_000)
        assert other.receive().response
        assert slow.is_closed()
        rest.give_back()


def test_a_peer_that_sends_slowly_is_waited_for(tmp_path: Path) -> None:
    whole = packed(EXECUTE, request(MIB), 1)
    with framed(tmp_path) as served, begun(served, whole[:MIB]) as peer:
        (connection,) = served.parts.methods.frames._connections
        for start in range(MIB, len(whole), MIB):
            peer.socket.sendall(whole[start : start + MIB])
            until(lambda start=start: connection.bytes_moved() > start, "it came")
            served.clock.advance(9.0)
            served.look()
        while (frame := peer.receive()).kind == ALIVE:
            pass
        assert frame.response


def test_a_peer_that_does_not_read_is_cut_and_holds_nothing(tmp_path: Path) -> None:
    with framed(tmp_path, device_that_answers(8 * MIB)) as served, connected(served) as peer:
        for call in range(1, 4):
            peer.execute(call)
        until(lambda: any(each.awaited for each in served.core.peers._open), "it has to read")
        for _ in range(40):
            served.clock.advance(1.0)
            served.look()
        until(served.is_idle, "all is given back")
        assert served.events("cut")[0]["message"].endswith("for its answer to be read")


def test_an_unfinished_hello_ends_after_five_seconds(tmp_path: Path) -> None:
    with framed(tmp_path) as served, FramePeer(path_of(served)) as peer:
        peer.hello()
        served.clock.advance(4.9)
        served.look()
        assert connections(served) == 1
        served.clock.advance(0.2)
        served.look()
        assert peer.is_closed()


def test_a_connection_without_calls_ends_after_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with framed(tmp_path) as served, connected(served) as peer:
        peer.execute()
        assert peer.receive().response
        served.look()
        assert connections(served) == 1
        monkeypatch.setattr(frame_service, "IDLE_SECONDS", -1.0)
        until(lambda: served.look() or not connections(served), "it is closed")
        assert peer.is_closed()


def test_a_thousand_strangers_take_no_place_of_who_is_known(tmp_path: Path) -> None:
    with framed(tmp_path) as served, ExitStack() as open_, connected(served) as known:
        for _ in range(1000):
            open_.enter_context(FramePeer(path_of(served)))
        until(lambda: connections(served) <= 1 + 64, "the oldest are closed")
        known.execute()
        assert known.receive().response
        with connected(served) as another:
            another.execute()
            assert another.receive().response


def test_an_idle_connection_gives_its_place_to_a_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("npucall_server.accounts.giving_way.IDLE_SECONDS", 0.0)
    with (
        framed(tmp_path, max_connections=2) as served,
        connected(served) as first,
        connected(served) as second,
    ):
        for each in (first, second):
            each.execute()
            assert each.receive().response
            until(lambda: len(idle(served)) == 2, "it is idle, as it is once that is sent")
        with connected(served) as third:
            assert first.is_closed()
            for each in (second, third):
                each.execute()
                assert each.receive().response


def test_connections_with_calls_keep_their_places(tmp_path: Path) -> None:
    device = BlockingDevice()
    with framed(tmp_path, device, max_connections=1) as served, connected(served) as first:
        first.execute()
        until(lambda: device.running, "it runs")
        with FramePeer(path_of(served)) as second:
            assert second.enter().reason == "QUEUE_FULL"
            assert second.is_closed()
        device.let_all_go()
        assert first.receive().response


def streamed(chance: random.Random) -> bytes:
    """A message of a stream, mostly one that may come."""
    call, whole = chance.randint(0, 2), pb.ExecuteRequest.FromString(request())
    begin = pb.Begin(request=whole)
    chunked = pb.Begin(request=pb.ExecuteRequest(call=whole.call), chunked=True)
    chunk = pb.Chunk(storage=chance.randint(0, 3), offset=chance.choice([0, 4]), data=bytes(4))
    fields: list[dict[str, Any]] = [
        {"begin": begin}, {"begin": chunked}, {"chunk": chunk}, {"end": pb.End()},
        {"cancel": pb.Cancel()}, {},
    ]  # fmt: skip
    return pb.ExecuteStreamRequest(call_id=call, **chance.choice(fields)).SerializeToString()


def session(chance: random.Random) -> bytes:
    """Frames of one connection, of which some bytes are others, some missing, some twice."""
    kinds = [EXECUTE, EXECUTE, PROGRAM, CREDENTIAL, STREAM, MEMORY, CANCEL, 77]
    frames = [
        packed(chance.choice(kinds), request(chance.randint(0, 3)), chance.randint(0, 3))
        for _ in range(chance.randint(0, 4))
    ]
    if chance.random() < 0.3:
        frames += [packed(STREAM, streamed(chance)) for _ in range(chance.randint(1, 6))]
    data = bytearray(b"".join(frames))
    for _ in range(chance.randint(0, 4)):
        start = chance.randint(0, len(data))
        data[start : start + chance.randint(0, 4)] = chance.randbytes(chance.randint(0, 4))
    return bytes(data[: chance.randint(0, len(data))] if chance.random() < 0.5 else data)


def survives(served: Served, data: bytes) -> None:
    """It answers with whole frames, and then another caller as if nothing had been."""
    with connected(served) as peer:
        peer.socket.sendall(data)
        peer.socket.shutdown(socket.SHUT_WR)
        try:
            while True:
                assert peer.receive().kind in (RESPONSE, ERROR, STREAM, MEMORY)
        except ConnectionError:
            pass
        except EOFError as end:
            cut = end.args[0]
            assert not cut
    until(served.is_idle, "nothing is left")


MANY = int(os.environ.get("FUZZ_SESSIONS", "10000"))
"""Sessions in the long test; 100,000 take forty minutes."""


@pytest.mark.parametrize("sessions", [500, pytest.param(MANY, marks=pytest.mark.long, id="long")])
def test_any_bytes_end_the_connection_or_are_answered(shared: Served, sessions: int) -> None:
    seed = random.getrandbits(32)
    for number in range(seed, seed + sessions):
        try:
            survives(shared, session(random.Random(number)))
        except BaseException as error:
            raise AssertionError(f"session {number}") from error
        if number % 500 == 0:
            assert '"INTERNAL"' not in shared.log.getvalue()
            shared.log.truncate(shared.log.seek(0))
    assert '"INTERNAL"' not in shared.log.getvalue()
    figures(f"{sessions:,} sessions from {seed} on, none of them harmed the next one")


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=64))
def test_strangers_may_say_anything(shared: Served, data: bytes) -> None:
    with FramePeer(path_of(shared)) as peer:
        peer.hello()
        peer.socket.sendall(data)
        peer.socket.shutdown(socket.SHUT_WR)
        with suppress(EOFError, ConnectionError):
            assert peer.receive().kind in (ERROR, WELCOME)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_frames_that_end_at_the_end_of_the_buffer_are_whole(shared: Served, over: int) -> None:
    first = packed(EXECUTE, request(), 1)
    fill = BUFFER_BYTES - 2 * len(first) - HEADER.size + over
    with connected(shared) as peer:
        peer.socket.sendall(first + packed(6, bytes(fill), 9) + packed(EXECUTE, request(), 2))
        assert [peer.receive().call for _ in range(2)] == [1, 2]


def test_the_threads_of_connections_end_with_them(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # some of an earlier test's may be ending

    def reading() -> int:
        begun = set(threading.enumerate()) - before
        return sum(each.name == "npucall-frames" for each in begun)

    with framed(tmp_path, FakeDevice()) as served, ExitStack() as open_:
        for _ in range(10):
            open_.enter_context(connected(served))
        until(lambda: reading() == 1, "one reads all of them")
        open_.close()
        until(lambda: not reading(), "all have ended")
