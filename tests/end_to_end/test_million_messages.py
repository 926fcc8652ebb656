"""A million mutated messages, unary and on streams, to one server: no crash, no bug, no growth."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

import grpc
import pytest
from google.rpc.status_pb2 import Status

from npucall.exchange import Begin, Chunk, Error
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.frames import (
    join_begin,
    join_cancel,
    join_chunk,
    join_end,
    split_response_frame,
)

from . import wire
from .test_hostile_bytes import REASONS, VALID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc"),
]

UNARY, FRAMES = 300_000, 700_000
AT_ONCE = 32
FRAMES_A_STREAM = 300
MIB = 2**20
FLAGS = ("--memory-limit=4MiB", "--max-message-bytes=1MiB", "--log-calls=errors")
ALLOWED = REASONS | {"SHARED_MEMORY", "CANCELLED", "DEADLINE", "STALLED", "QUEUE_FULL", "BUSY"}
"""A mutant may name a region, and a call of a stream may be cancelled, or its time be over."""


CHUNKED = pb.ExecuteRequest(call=pb.ExecuteRequest.FromString(VALID[1]).call).SerializeToString()
"""A call of three storages of 8 bytes, which follow."""


class WatchedServer:
    """A server whose log is read, and forgotten but for what must not stand in it."""

    def __init__(self, folder: Path) -> None:
        ready = folder / "ready"
        command = [sys.executable, "-m", "npucall_server", "--listen=127.0.0.1:0", *FLAGS]
        self.process = subprocess.Popen([*command, f"--ready-file={ready}"], stderr=subprocess.PIPE)
        self.bugs: list[bytes] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        wire.until(ready.exists, "the server answers")
        self.target = ready.read_text()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if b'"traceback"' in line or not line.startswith(b'{"time"'):
                self.bugs.append(line[:5000])

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(60)
        self._reader.join()
        self.process.stderr.close()  # type: ignore[union-attr]
        return code


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WatchedServer]:
    server = WatchedServer(tmp_path)
    yield server
    server.process.kill()
    server.stop()


def mutant(chance: random.Random, message: bytes) -> bytes:
    """Some of its bytes changed, taken out, doubled, put in or cut off."""
    found = bytearray(message)
    for _ in range(chance.randint(1, 2)):
        start = chance.randint(0, len(found))
        end = min(start + chance.randint(0, 12), len(found))
        match chance.randrange(6):
            case 0 | 1 if start < len(found):
                found[start] = chance.randrange(256)
            case 2:
                del found[start:end]
            case 3:
                found[start:start] = found[start:end]
            case 4:
                found[start:start] = chance.randbytes(chance.randint(1, 12))
            case 5:
                del found[max(start, 1) :]
    return bytes(found)


def send_unary(channel: grpc.Channel, seed: int, count: int, seen: Counter[str]) -> None:
    chance = random.Random(seed)
    methods = [wire.method(channel, name) for name in wire.METHODS]
    weights = [8, 3, 1, 3, 1]  # the listing is long
    waiting: deque[grpc.Future] = deque()
    for _ in range(count):
        method = chance.choices(methods, weights)[0]
        waiting.append(method.future(mutant(chance, chance.choice(VALID)), timeout=60))
        while len(waiting) > AT_ONCE:
            seen[wire.reason_of(waiting.popleft())] += 1
    seen.update(map(wire.reason_of, waiting))


def frames(chance: random.Random, count: int) -> Iterator[bytes]:
    """Of which most can be read, so that the stream lives; it ends with some that cannot."""
    for call_id in range(1, count - 5):
        if call_id % 5:
            request = mutant(chance, chance.choice(VALID))
            yield join_begin(call_id, Begin(request, timeout_ns=10**10))
        elif call_id % 2:
            yield join_begin(call_id, Begin(mutant(chance, VALID[0]), chunked=True))
        else:
            yield join_cancel(call_id - 5)
    chunks = [join_chunk(count, Chunk(number, 0, bytes(8))) for number in range(3)]
    whole = [join_begin(count, Begin(CHUNKED, chunked=True)), *chunks, join_end(count)]
    yield from (frame if chance.randrange(4) else mutant(chance, frame) for frame in whole)
    yield mutant(chance, join_begin(count + 1, Begin(VALID[1])))


def send_frames(channel: grpc.Channel, seed: int, count: int, seen: Counter[str]) -> int:
    chance, sent = random.Random(seed), 0
    method = channel.stream_stream(f"/{wire.SERVICE}/ExecuteStream")
    while sent < count:
        given = Counted(frames(chance, FRAMES_A_STREAM))
        stream = method(given, timeout=60)
        try:
            for answer in stream:
                _, frame = split_response_frame(answer)
                failed = isinstance(frame, Error)
                seen[wire.reason_in(Status.FromString(frame.status)) if failed else "OK"] += 1  # type: ignore[union-attr]
        except grpc.RpcError as error:
            seen[wire.reason_of(error)] += 1
        sent += given.count
    return sent


class Counted:
    """An iterator that knows how many it gave."""

    def __init__(self, inner: Iterator[bytes]) -> None:
        self._inner = inner
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        frame = next(self._inner)
        self.count += 1
        return frame


def test_a_million_mutated_messages_are_answered_and_leave_nothing_behind(
    server: WatchedServer,
) -> None:
    seen: Counter[str] = Counter()
    start = time.monotonic()
    with wire.bare_channel(server.target) as channel:
        send_unary(channel, 1, 5_000, seen)
        send_frames(channel, 1, 5_000, seen)
        before = wire.resident_bytes(server.process.pid)
        send_unary(channel, 2, UNARY - 5_000, seen)
        sent = UNARY + 5_000 + send_frames(channel, 2, FRAMES - 5_000, seen)
        info = wire.server_info(channel)
        after = wire.resident_bytes(server.process.pid)
    assert server.stop() == 0
    seconds, grown = time.monotonic() - start, (after - before) / MIB
    print(f"\n{sent:,} messages in {seconds:.0f} s, {grown:+.1f} MiB: {dict(seen)}")
    assert sent >= UNARY + FRAMES
    assert seen.keys() <= ALLOWED
    assert server.bugs == []
    assert (info.calls_in_flight, info.bytes_in_flight) == (0, 0)
    assert after - before < 64 * MIB
