"""Time: nobody stops the others, and what one call may compute or parse is bounded."""

import time

import pytest

from . import attacks, requests
from .attacks import endings
from .clients import polite
from .http2 import over, pump
from .servers import MIB, Start

pytestmark = pytest.mark.long

UNDER_ATTACK = 10.0
"""Seconds for which polite callers are looked at."""


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
