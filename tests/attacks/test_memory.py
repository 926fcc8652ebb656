"""Memory: whatever callers send, the server stays under 1.5 x memory_limit + 256 MiB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.end_to_end import wire

import npucall_client
from npucall.operators.l1_loss_backward import l1_loss_backward

from . import attacks, requests
from .attacked import GIB, LIMITS, MIB
from .raw import answered, connections, message, over, pump

if TYPE_CHECKING:
    from .attacked import Attacked, Figure, Start

pytestmark = pytest.mark.long

limits = pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
small_limits = pytest.mark.parametrize("limit", [256 * MIB, GIB], ids=["256 MiB", "1 GiB"])


def crowd(server: Attacked, size: int) -> tuple[int, int]:
    """How many messages break the promise unless they are counted, and the bytes of each."""
    size = min(size, server.largest_message() - 4096)
    return max(40, server.promise * 5 // 4 // size), size


# A row that takes all of a large limit is not through within a minute.
@pytest.mark.parametrize(
    ("limit", "calls"),
    [(256 * MIB, 1), (256 * MIB, 4), (GIB, 4), (4 * GIB, 8)],
    ids=["256 MiB at once", "256 MiB", "1 GiB", "4 GiB"],
)
@pytest.mark.parametrize("operator", requests.WORKING_MEMORY)
def test_working_memory_of_small_requests_is_bounded(
    start: Start, figure: Figure, operator: str, limit: int, calls: int
) -> None:
    share = limit // calls - 4096
    with start(limit=limit) as server:
        with attacks.working_memory(server.target, operator, share, calls) as raws:
            ends, all_answered = attacks.refusals(raws), answered(raws)()
        name = f"{calls} {operator} of {share / MIB:.0f} MiB, {limit // MIB} MiB"
        figure(name, f"{server.show_peak()}; {ends}")
        assert server.peak() < server.promise
        assert all_answered


@limits
def test_bodies_one_byte_short_are_bounded_and_cut(
    start: Start, figure: Figure, limit: int
) -> None:
    with start(limit=limit) as server:
        calls, size = crowd(server, 50 * MIB)
        with attacks.bodies_one_byte_short(server.target, calls, size) as raws:
            pump(raws, 25, over(raws))  # 10 s for room, then 10 s for a byte
            left = sum(raw.open_streams for raw in raws)
            ends = attacks.refusals(raws)
        name = f"{calls} bodies of {size // MIB} MiB one byte short, {limit // MIB} MiB"
        figure(name, f"{server.show_peak()}; {left} held after 25 s; {ends}")
        assert server.peak() < server.promise
        assert left == 0


def test_a_body_that_comes_slowly_is_not_cut_while_nobody_waits(
    start: Start, figure: Figure
) -> None:
    body = requests.small()
    prefix, _ = message(body)
    with start() as server, connections(server.target, 1) as (raw,):
        call = raw.call("Execute", prefix, body[:-12], end=False)
        for byte in body[-12:]:
            pump([raw], 2)
            raw.send(call, bytes([byte]))
        raw.send(call, end=True)
        pump([raw], 5, over([raw]))
        figure("a byte every 2 s, for 24 s", attacks.refusals([raw]))
        assert raw.ended == {call: "0"}


@pytest.mark.parametrize("path", ["Execute", "GetServerInfo"])
def test_compressed_messages_are_refused_before_they_are_unpacked(
    start: Start, figure: Figure, path: str
) -> None:
    bomb = requests.gzip_of_zeros(900)
    with start(limit=256 * MIB) as server:
        with attacks.gzip_bombs(server.target, path, bomb) as raw:
            ends = attacks.refusals([raw])
        grown = server.peak() - server.resident_at_start
        name = f"{len(bomb) / MIB:.1f} MiB of gzip to {path}"
        figure(name, f"+{grown / MIB:,.0f} MiB; {server.show_peak()}; {ends}")
        assert grown < 64 * MIB
        assert set(raw.ended.values()) == {"12"}  # UNIMPLEMENTED


@small_limits
def test_padding_counts(start: Start, figure: Figure, limit: int) -> None:
    with start(limit=limit) as server:
        calls, size = crowd(server, 60 * MIB)
        with attacks.padding(server.target, calls, size) as raws:
            ends = attacks.refusals(raws)
        name = f"{calls} calls with {size // MIB} MiB of unknown fields, {limit // MIB} MiB"
        figure(name, f"{server.show_peak()}; {ends}")
        assert server.peak() < server.promise


@small_limits
def test_answers_that_nobody_reads_are_counted_and_cancelled(
    start: Start, figure: Figure, limit: int
) -> None:
    with start(limit=limit) as server:
        calls, size = crowd(server, 75 * MIB)
        with attacks.unread_answers(server.target, calls, size) as raws:
            _, held = server.in_flight()
            begun = sum(len(raw.received.keys() - raw.ended) for raw in raws)
            pump(raws, 45, over(raws))  # 30 s without a byte, since the last call was opened
            left, ends = sum(raw.open_streams for raw in raws), attacks.refusals(raws)
        figure(
            f"{calls} answers of {size // MIB} MiB unread, {limit // MIB} MiB",
            f"{server.show_peak()}; {begun} begun, {held / MIB:,.0f} MiB counted; "
            f"{left} held after 45 s; {ends}",
        )
        assert server.peak() < server.promise
        assert held >= size
        assert left == 0


@pytest.mark.parametrize("method", ["GetOperator", "Execute"])
def test_long_names_stay_neither_in_memory_nor_in_the_log(
    start: Start, figure: Figure, method: str
) -> None:
    """20 names, one after the other, of 40 MiB where a message may be so long."""
    with start("--keep-memory=0") as server:
        size = crowd(server, 40 * MIB)[1]
        with connections(server.target, 1) as raws:
            for number in range(20):
                named = requests.field(1, b"%d" % number + b"x" * size)
                request = requests.field(1, named) if method == "Execute" else named
                raws[0].call(method, *message(request))
                pump(raws, 10, over(raws))
            ends = attacks.refusals(raws)
        kept = wire.resident_bytes(server.process.pid) - server.resident_at_start
        log = server.log.stat().st_size
        figure(
            f"20 names of {size // MIB} MiB to {method}",
            f"+{kept / MIB:.0f} MiB kept, {server.show_peak()}, log {log / 1024:,.0f} KiB; {ends}",
        )
        assert kept < 128 * MIB  # what the heap keeps of some messages
        assert log < 256 * 1024


@limits
def test_honest_load_stays_closer_to_the_limit(start: Start, figure: Figure, limit: int) -> None:
    """Large calls in chunks, each of which needs a quarter of the limit, four at a time."""
    numbers = np.ones(limit // 32, np.float32)
    with start(limit=limit) as server, npucall_client.connect(server.target) as client:
        for _ in range(3):
            client.run(l1_loss_backward, np.float32(1), numbers, np.float32(0), reduction=2)
        with client.pipeline() as pipeline:
            calls = [
                pipeline.submit(l1_loss_backward, np.float32(1), numbers, np.float32(0))
                for _ in range(3)
            ]
            for call in calls:
                call.result(60)
        most = limit * 5 // 4 + server.resident_at_start
        name = f"honest calls, {limit // MIB} MiB"
        figure(name, f"{server.peak() / MIB:,.0f} MiB (promise {most / MIB:,.0f})")
        assert server.peak() < most
