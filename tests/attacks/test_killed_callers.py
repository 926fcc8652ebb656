"""Callers of sessions that die with everything open: all they held is free within one lease."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.end_to_end import wire
from tests.npu import environment

from .crashing import crash
from .servers import MIB

if TYPE_CHECKING:
    from pathlib import Path

    from .servers import AttackedServer, Start

LEASE = 3.0
SLACK = 20.0
"""Seconds beyond the lease, on a machine that is busy."""
DIGESTS, LIMIT = 4 * MIB, 512 * MIB
FLAGS = f"--session-lease={LEASE}", f"--digest-cache-bytes={DIGESTS}", "--queue-length=64"
AT_ONCE, KILLED = 20, 1000
METHODS = {"OpenSession", "Upload", "Execute", "ExecuteProgram", "ExecuteStream"}
"""At least of these were answered, so that there was something to hold."""
THREADS, DESCRIPTORS = 64, 8
"""More than a server keeps for calls, and for looking at itself."""


class Held(NamedTuple):
    """What a server holds."""

    calls: int
    bytes: int
    """Those of sessions, handles and digests among them."""
    device_bytes: int
    """Of an NPU; 0 for a CPU."""


def held(server: AttackedServer) -> Held:
    info = server.info()
    used = info.device.memory_total_bytes - info.device.memory_free_bytes
    return Held(info.calls_in_flight, info.bytes_in_flight, used)


def answered_methods(server: AttackedServer) -> set[str]:
    lines = map(json.loads, server.log.read_text().splitlines())
    return {line["method"] for line in lines if line.get("reason") == "OK"}


def seconds_until_free(server: AttackedServer, most: Held) -> float:
    """Until the server holds no more than that; infinite where that takes longer than it may."""
    return server.seconds_until(
        lambda: all(now <= bound for now, bound in zip(held(server), most, strict=True)),
        LEASE + SLACK,
    )


@pytest.mark.more
@pytest.mark.parametrize("count", [AT_ONCE, pytest.param(KILLED, marks=pytest.mark.long)])
def test_all_that_killed_callers_held_is_free_within_one_lease(start: Start, count: int) -> None:
    with start(*FLAGS, limit=LIMIT) as server:
        threads, descriptors = server.threads(), server.descriptors()
        crash(server.target, count, AT_ONCE, seed=1)
        assert answered_methods(server) >= METHODS
        seconds = seconds_until_free(server, Held(0, DIGESTS, 0))
        server.note(
            f"free after {seconds:.1f} s", f"threads {threads} -> {server.threads()}",
            f"descriptors {descriptors} -> {server.descriptors()}",
        )  # fmt: skip
        assert seconds < LEASE + SLACK
        assert server.threads() < threads + THREADS
        assert server.descriptors() <= descriptors + DESCRIPTORS
        assert '"traceback"' not in server.log.read_text()


@pytest.mark.long
def test_device_memory_of_killed_callers_is_free_within_one_lease(
    start: Start, tmp_path: Path
) -> None:
    """Lanes keep memory of their own, as much as the largest call took: callers before show it."""
    report = tmp_path / "report.json"
    given = environment(NPUCALL_SIM_REPORT=str(report))
    with start("--device=cann:0", *FLAGS, limit=LIMIT, environment=given) as server:
        crash(server.target, 5 * AT_ONCE, AT_ONCE, seed=2)
        time.sleep(LEASE + 2.0)
        before = held(server)
        crash(server.target, KILLED, AT_ONCE, seed=3)
        seconds = seconds_until_free(server, Held(0, DIGESTS, before.device_bytes))
        server.note(f"free after {seconds:.1f} s", before, held(server))
        assert seconds < LEASE + SLACK
        server.process.terminate()
        assert server.process.wait(wire.PATIENCE) == 0
    told = json.loads(report.read_text())
    assert (told["violations"], told["live_objects"]) == ([], {})
