"""Time: nobody stops the others, and what one call may compute or parse is bounded."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.end_to_end import wire

from . import attacks, requests
from .attacks import endings
from .clients import polite
from .http2 import over, pump
from .servers import MIB

if TYPE_CHECKING:
    from .servers import Start

pytestmark = pytest.mark.long

UNDER_ATTACK = 10.0
"""Seconds for which polite callers are looked at."""


def test_calls_of_three_million_steps_leave_others_their_turns(start: Start) -> None:
    with start() as server, polite(server.target) as seen:
        with attacks.endless_steps(server.target, wire.LANES) as made:
            pump(made, UNDER_ATTACK)
            beside = seen()
        server.note(beside, endings(made))
        assert beside.all_served


def test_cancel_ends_a_call_of_many_steps(start: Start) -> None:
    with start() as server:
        with attacks.endless_steps(server.target, 1) as made:
            begun = server.in_flight()[0] or sum(len(each.ended) for each in made)
            made[0].reset(1)
            pump(made, 0.5)
        seconds = server.seconds_until_idle(30)
        server.note(f"{seconds:.1f} s")
        assert begun == 1
        assert seconds < 30


def test_the_servers_call_timeout_ends_a_call_of_many_steps(start: Start) -> None:
    with start("--call-timeout=3") as server:
        with attacks.endless_steps(server.target, 1) as made:
            pump(made, 30, over)
            server.note(endings(made))
        seconds = server.seconds_until_idle(10)
        assert seconds < 10


@pytest.mark.parametrize("kind", requests.crowded(1000))
def test_messages_full_of_small_fields_cost_little(start: Start, kind: str) -> None:
    """Four at a time; the time is that until all have an answer, whatever it is."""
    with start("--max-message-bytes=16MiB") as server:
        begun = time.monotonic()
        with attacks.small_fields(server.target, kind, 16 * MIB - 64) as made:
            server.note(f"{time.monotonic() - begun:.1f} s", endings(made))
            assert over(made)
        assert server.peak() < server.promise


@pytest.mark.parametrize("calls", [138, 1000])
@pytest.mark.parametrize("path", attacks.SILENT)
def test_calls_that_say_nothing_keep_nobody_out(start: Start, path: str, calls: int) -> None:
    flags = ["--reflection"] if path == "reflection" else []
    with start(*flags) as server, polite(server.target) as seen:
        with attacks.silence(server.target, attacks.SILENT[path], calls) as made:
            server.note(f"{server.threads()} threads")
            pump(made, UNDER_ATTACK)
            beside = seen()
        server.note(beside, endings(made))
        assert beside.all_served


def test_rapid_resets_of_another_connection_cancel_nobody(start: Start) -> None:
    with start() as server, polite(server.target) as seen:
        with attacks.resets(server.target, 5) as (hand,):
            beside = seen()
        server.note(f"{hand.opened / 5:,.0f} resets a second", beside)
        assert not beside.lost
