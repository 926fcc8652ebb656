"""Memory: whatever callers send, the server stays under 1.5 x memory_limit + 256 MiB."""

import numpy as np
import pytest
from tests.end_to_end import wire

import npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward

from . import attacks, requests
from .attacks import endings
from .http2 import LONG, answered, connected, message, over, pump
from .servers import GIB, MIB, AttackedServer, Start

pytestmark = pytest.mark.long

limits = pytest.mark.parametrize("limit", [256 * MIB, GIB, 4 * GIB])
small_limits = pytest.mark.parametrize("limit", [256 * MIB, GIB])


def crowd(server: AttackedServer, size: int) -> tuple[int, int]:
    """How many messages break the promise unless they are counted, and the bytes of each."""
    size = min(size, server.info().limits.max_message_bytes - 4096)
    return max(40, server.promise * 5 // 4 // size), size


# A row that takes all of a large limit is not through within a minute.
@pytest.mark.parametrize(
    ("limit", "calls"), [(256 * MIB, 1), (256 * MIB, 4), (GIB, 4), (4 * GIB, 8)]
)
@pytest.mark.parametrize("operator", requests.WORKING_MEMORY)
def test_working_memory_of_small_requests_is_bounded(
    start: Start, operator: str, limit: int, calls: int
) -> None:
    share = limit // calls - 4096
    with start(limit=limit) as server:
        with attacks.working_memory(server.target, operator, share, calls) as made:
            server.note(endings(made))
            assert answered(made)
        assert server.peak() < server.promise


@limits
def test_bodies_one_byte_short_are_bounded_and_cut(start: Start, limit: int) -> None:
    with start(limit=limit) as server:
        calls, size = crowd(server, 50 * MIB)
        with attacks.bodies_one_byte_short(server.target, calls, size) as made:
            pump(made, LONG, over)  # 10 s for room, then 10 s for a byte
            server.note(calls, endings(made))
            assert over(made)
        assert server.peak() < server.promise


def test_a_body_that_comes_slowly_is_not_cut_while_nobody_waits(start: Start) -> None:
    """A byte every two seconds, for 24 seconds."""
    prefix, body = message(requests.SMALL)
    with start() as server, connected(server.target) as (hand,):
        call = hand.call("Execute", prefix, body[:-12], end=False)
        for byte in body[-12:]:
            pump([hand], 2)
            hand.send(call, bytes([byte]))
        hand.send(call, end=True)
        pump([hand], LONG, over)
        assert hand.ended == {call: "0"}


@pytest.mark.parametrize("path", ["Execute", "GetServerInfo"])
def test_compressed_messages_are_refused_before_they_are_unpacked(start: Start, path: str) -> None:
    bomb = requests.gzip_of_zeros(900)
    with start() as server:
        with attacks.gzip_bombs(server.target, path, bomb) as (hand,):
            assert set(hand.ended.values()) == {"12"}  # UNIMPLEMENTED
        grown = server.peak() - server.resident_at_start
        server.note(f"+{grown / MIB:,.0f} MiB")
        assert grown < 64 * MIB


@small_limits
def test_padding_counts(start: Start, limit: int) -> None:
    with start(limit=limit) as server:
        calls, size = crowd(server, 60 * MIB)
        with attacks.padding(server.target, calls, size) as made:
            server.note(calls, endings(made))
        assert server.peak() < server.promise


@small_limits
def test_answers_that_nobody_reads_are_counted_and_cancelled(start: Start, limit: int) -> None:
    with start(limit=limit) as server:
        calls, size = crowd(server, 75 * MIB)
        with attacks.unread_answers(server.target, calls, size) as made:
            _, held = server.in_flight()
            pump(made, LONG, over)  # 30 s without a byte, since the last call was opened
            server.note(calls, f"{held / MIB:,.0f} MiB counted", endings(made))
            assert over(made)
        assert server.peak() < server.promise
        assert held >= size


@pytest.mark.parametrize("method", ["GetOperator", "Execute"])
def test_long_names_stay_neither_in_memory_nor_in_the_log(start: Start, method: str) -> None:
    """20 names, one after the other, of 40 MiB where a message may be so long."""
    with start("--keep-memory=0") as server:
        size = crowd(server, 40 * MIB)[1]
        with connected(server.target) as made:
            for number in range(20):
                named = requests.field(1, b"%d" % number + b"x" * size)
                request = requests.field(1, named) if method == "Execute" else named
                made[0].call(method, *message(request))
                pump(made, LONG, over)
            server.note(endings(made))
        kept = wire.resident_bytes(server.process.pid) - server.resident_at_start
        log = server.log.stat().st_size
        server.note(f"+{kept / MIB:.0f} MiB kept", f"log {log / 1024:,.0f} KiB")
        assert kept < 128 * MIB  # what the heap keeps of some messages
        assert log < 256 * 1024


@limits
def test_honest_load_stays_closer_to_the_limit(start: Start, limit: int) -> None:
    """Large calls in chunks, each of which needs a quarter of the limit, four at a time."""
    call = l1_loss_backward, np.float32(1), np.ones(limit // 32, np.float32), np.float32(0)
    with start(limit=limit) as server, npucall_client.connect(server.target) as client:
        for _ in range(3):
            client.run(*call, reduction=2)
        with client.pipeline() as pipeline:
            for future in [pipeline.submit(*call) for _ in range(3)]:
                future.result(60)
        assert server.peak() < limit * 5 // 4 + server.resident_at_start
