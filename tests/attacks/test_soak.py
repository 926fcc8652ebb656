"""Soak: hostile and polite callers together, for ``SOAK_SECONDS`` (120; 1800 is the full one)."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest

from npucall.errors import NpucallError
from npucall_client import Options, aio
from npucall_client.aio import Client

from . import attacks, requests
from .attacks import Attack
from .clients import ONE, ZERO, Seen, clients, polite
from .http2 import LONG, pump
from .servers import GIB, AttackedServer, Start

pytestmark = pytest.mark.long

QUIET_SECONDS = 10.0
HOSTILE, COUNT = "tests.attacks.test_soak", 3
HOLD_SECONDS = 4.0
"""For which an attack stands, with its connections open."""
MORE = {"threads": 4, "descriptors": 8, "mappings": 64}
"""That another moment may have."""
OF_A_THREAD = 2
"""Mappings: its stack, and the guard before it."""


def kept(server: AttackedServer) -> dict[str, int]:
    """What the process has once nothing is in flight, but for threads that wait for a task: how
    many of them a pool has depends on what came together by chance."""
    assert server.seconds_until_idle(LONG) < LONG
    waiting = server.waiting_threads()
    return {
        "threads": server.threads() - waiting,
        "descriptors": server.descriptors(),
        "mappings": server.mappings() - OF_A_THREAD * waiting,
    }


def beside_hostile(server: AttackedServer, seconds: float) -> Seen:
    """What polite callers see for so long."""
    with polite(server.target, "large") as seen, ExitStack() as hostile:
        time.sleep(QUIET_SECONDS)
        server.note(f"before {seen()}")
        for kind in ("hostile",) * COUNT + ("cancelling",):
            hostile.enter_context(clients(HOSTILE, server.target, kind, server.limit))
        with suppress(subprocess.TimeoutExpired):
            server.process.wait(seconds)
        return seen()


def test_polite_callers_lose_nothing_beside_hostile_ones(start: Start) -> None:
    """What the first part of the soak leaves is there for good, such as memory that is kept for
    later calls; the rest of it leaves nothing more."""
    seconds = float(os.environ.get("SOAK_SECONDS", "120"))
    with start("--reflection", limit=GIB) as server:
        first = beside_hostile(server, seconds / 3)
        before = kept(server)
        rest = beside_hostile(server, 2 * seconds / 3)
        assert not server.killed
        after = kept(server)
        server.note(first, rest, f"{before} -> {after}")
        assert not first.lost
        assert not rest.lost
        assert server.peak() < server.promise
        assert [name for name in after if after[name] > before[name] + MORE[name]] == []
        assert '"traceback"' not in server.log.read_text()


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


async def cancelling(target: str) -> None:
    """Calls of every kind over both carriers, given up at any moment."""
    size = 2**19
    many = np.ones(size, np.float32)

    async def pipeline(client: Client) -> None:
        async with client.pipeline() as calls:
            for _ in range(8):
                await calls.submit("L1LossBackward", ONE, many, ZERO, reduction=2)

    async def resident(client: Client) -> None:
        async with client.session() as session:
            kept = await session.put(many)
            async with session.program() as program:
                await program.run("L1LossBackward", ONE, kept, ZERO, reduction=2)

    async with AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(aio.connect(target, options=Options(carrier=carrier)))
            for carrier in ("auto", "grpc")
        ]
        ways: list[Callable[[Client], Coroutine[Any, Any, Any]]] = [
            lambda client: client.run("L1LossBackward", ONE, ONE, ZERO),
            lambda client: client.run("L1LossBackward", ONE, many, ZERO, reduction=2),
            pipeline,
            resident,
        ]
        print("begun", flush=True)
        while True:
            task = asyncio.create_task(random.choice(ways)(random.choice(both)))
            await asyncio.wait([task], timeout=random.uniform(0, 0.05))
            task.cancel()
            with suppress(asyncio.CancelledError, NpucallError):
                await task


def hostile(target: str, limit: str) -> None:
    """One attack after the other, in any order."""
    attacks_on = let_loose(target, int(limit))
    print("begun", flush=True)
    while True:
        with suppress(OSError, grpc.RpcError), random.choice(attacks_on)() as held:
            pump(held, HOLD_SECONDS)
        time.sleep(0.1)  # a server that refuses all connections


if __name__ == "__main__":
    target, kind, limit = sys.argv[1:]
    if kind == "cancelling":
        asyncio.run(cancelling(target))
    else:
        hostile(target, limit)
