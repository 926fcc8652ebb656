"""Time: nobody stops the others, and what one call may compute or parse is bounded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.end_to_end import wire

from . import attacks, requests
from .attacked import MIB
from .honest import honest
from .raw import over, pump

if TYPE_CHECKING:
    from .attacked import Figure, Start

pytestmark = pytest.mark.long

QUIET, UNDER_ATTACK = 3.0, 10.0
"""Seconds for which honest callers are looked at."""


def test_calls_of_three_million_steps_leave_others_their_turns(
    start: Start, figure: Figure
) -> None:
    with start() as server, honest(server.target) as callers:
        time.sleep(QUIET)
        quiet = callers.seen()
        with attacks.endless_steps(server.target, wire.LANES) as raws:
            pump(raws, UNDER_ATTACK)
            seen = callers.seen()
            ends = attacks.refusals(raws)
        figure(f"{wire.LANES} CTC of 3 million steps", f"quiet: {quiet}; then: {seen}; {ends}")
        assert seen.all_served


def test_cancel_ends_a_call_of_many_steps(start: Start, figure: Figure) -> None:
    with start() as server:
        with attacks.endless_steps(server.target, 1) as raws:
            begun = server.in_flight()[0] or sum(len(raw.ended) for raw in raws)
            raws[0].reset(1)
            pump(raws, 0.5)
        seconds = server.seconds_until_idle(30)
        figure("a CTC of 3 million steps after its cancel", f"{seconds:.1f} s")
        assert begun == 1
        assert seconds < 30


def test_the_servers_call_timeout_ends_a_call_of_many_steps(start: Start, figure: Figure) -> None:
    with start("--call-timeout=3") as server:
        with attacks.endless_steps(server.target, 1) as raws:
            pump(raws, 30, over(raws))
            ends = attacks.refusals(raws)
        seconds = server.seconds_until_idle(10)
        figure("a CTC of 3 million steps, call_timeout 3 s", f"{ends}, idle after {seconds:.1f} s")
        assert seconds < 10


@pytest.mark.parametrize("kind", requests.crowded(1000))
def test_messages_full_of_small_fields_cost_little(start: Start, figure: Figure, kind: str) -> None:
    """Four at a time; the time is that until all have an answer, whatever it is."""
    with start("--max-message-bytes=16MiB") as server:
        begun = time.monotonic()
        with attacks.small_fields(server.target, kind, 16 * MIB - 64) as raws:
            seconds, ends = time.monotonic() - begun, attacks.refusals(raws)
            answered = over(raws)()
        name = f"4 messages of 16 MiB to {requests.crowded(1000)[kind][0]}, {kind}"
        figure(name, f"{seconds:.1f} s, {server.show_peak()}; {ends}")
        assert answered
        assert server.peak() < server.promise


@pytest.mark.parametrize("calls", [138, 1000])
@pytest.mark.parametrize("path", attacks.HEADERS)
def test_calls_that_say_nothing_keep_nobody_out(
    start: Start, figure: Figure, path: str, calls: int
) -> None:
    flags = ["--reflection"] if path == "reflection" else []
    with start(*flags) as server, honest(server.target) as callers:
        with attacks.silence(server.target, attacks.HEADERS[path], calls) as raw:
            threads = server.threads()
            pump([raw], UNDER_ATTACK)
            seen = callers.seen()
            ends = attacks.refusals([raw])
        figure(f"{calls} calls without a body to {path}", f"{seen}; {threads} threads; {ends}")
        assert seen.all_served


def test_rapid_resets_of_another_connection_cancel_nobody(start: Start, figure: Figure) -> None:
    with start() as server, honest(server.target) as callers:
        with attacks.resets(server.target, 5) as raw:
            seen = callers.seen()
        figure(f"{raw.opened / 5:,.0f} resets a second", seen)
        assert (seen.lost, seen.wrong) == (0, 0)
