"""Soak: hostile and polite callers together, for ``SOAK_SECONDS`` (120; 1800 is the full one)."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import pytest

from .clients import clients, polite
from .servers import GIB

if TYPE_CHECKING:
    from .servers import Start

pytestmark = pytest.mark.long

QUIET_SECONDS = 10.0
HOSTILE = 3
IDLE_SECONDS = 60.0
"""After which all that hostile callers held has been given back."""
THREADS = 256
"""More than a server keeps for calls and streams."""


def test_polite_callers_lose_nothing_beside_hostile_ones(start: Start) -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", "120"))
    with start("--reflection", limit=GIB) as server:
        with polite(server.target, "large") as seen, ExitStack() as hostile:
            time.sleep(QUIET_SECONDS)
            server.note(f"before it {seen()}")
            threads, descriptors = server.threads(), server.descriptors()
            for _ in range(HOSTILE):
                hostile.enter_context(clients("hostile", server.target, server.limit))
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(seconds)
            beside = seen()
        assert not server.killed
        idle = server.seconds_until_idle(IDLE_SECONDS)
        server.note(
            beside, f"idle after {idle:.0f} s", f"threads {threads} -> {server.threads()}",
            f"descriptors {descriptors} -> {server.descriptors()}",
        )  # fmt: skip
        assert not beside.lost
        assert server.peak() < server.promise
        assert idle < IDLE_SECONDS
        assert server.threads() < threads + THREADS
        assert server.descriptors() <= descriptors + 8
        assert '"traceback"' not in server.log.read_text()
