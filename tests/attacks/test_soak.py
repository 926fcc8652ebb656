"""Soak: hostile and polite callers together, for ``SOAK_SECONDS`` (120; 1800 is the full one)."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial

import grpc
import pytest

from . import attacks, requests
from .attacks import Attack
from .clients import clients, polite
from .http2 import LONG, pump
from .servers import GIB, Start

pytestmark = pytest.mark.long

QUIET_SECONDS = 10.0
HOSTILE, COUNT = "tests.attacks.test_soak", 3
HOLD_SECONDS = 4.0
"""For which an attack stands, with its connections open."""
THREADS = 256
"""More than a server keeps for calls and streams."""


def test_polite_callers_lose_nothing_beside_hostile_ones(start: Start) -> None:
    seconds = float(os.environ.get("SOAK_SECONDS", "120"))
    with start("--reflection", limit=GIB) as server:
        with polite(server.target, "large") as seen, ExitStack() as hostile:
            time.sleep(QUIET_SECONDS)
            server.note(f"before it {seen()}")
            threads, descriptors = server.threads(), server.descriptors()
            for _ in range(COUNT):
                hostile.enter_context(clients(HOSTILE, server.target, server.limit))
            with suppress(subprocess.TimeoutExpired):
                server.process.wait(seconds)
            beside = seen()
        assert not server.killed
        idle = server.seconds_until_idle(LONG)
        server.note(
            beside, f"idle after {idle:.0f} s", f"threads {threads} -> {server.threads()}",
            f"descriptors {descriptors} -> {server.descriptors()}",
        )  # fmt: skip
        assert not beside.lost
        assert server.peak() < server.promise
        assert idle < LONG
        assert server.threads() < threads + THREADS
        assert server.descriptors() <= descriptors + 8
        assert '"traceback"' not in server.log.read_text()


# --- Hostile callers ------------------------------------------------------------------------------


def let_loose(target: str, limit: int) -> list[Callable[[], Attack]]:
    """Every attack, small enough to be repeated for as long as a soak lasts."""
    part, bomb = min(limit // 40, 7 * attacks.MIB), requests.gzip_of_zeros(200)
    crowds = "places in a storage", "arguments in a begin"
    return [
        *(
            partial(attacks.working_memory, target, each, limit // 4, 2)
            for each in requests.WORKING_MEMORY
        ),
        *(partial(attacks.silence, target, path, 138) for path in attacks.SILENT.values()),
        *(partial(attacks.small_fields, target, kind, part, 2) for kind in crowds),
        partial(attacks.bodies_one_byte_short, target, 20, part),
        partial(attacks.gzip_bombs, target, "GetServerInfo", bomb),
        partial(attacks.padding, target, 20, part),
        partial(attacks.unread_answers, target, 20, part),
        partial(attacks.endless_steps, target),
        partial(attacks.a_claim_on_everything, target, limit),
        partial(attacks.streams_that_do_not_read, target, limit // 200),
        partial(attacks.frames, target, 64),
        partial(attacks.calls_without_bytes, target),
        partial(attacks.resets, target, 5),
        partial(attacks.idle_connections, target, 100),
    ]


def hostile(target: str, limit: str) -> None:
    """One attack after the other, in any order."""
    attacks_on = let_loose(target, int(limit))
    print("begun", flush=True)
    while True:
        with suppress(OSError, grpc.RpcError), random.choice(attacks_on)() as held:
            pump(held, HOLD_SECONDS)
        time.sleep(0.1)  # a server that refuses all connections


if __name__ == "__main__":
    hostile(*sys.argv[1:])
