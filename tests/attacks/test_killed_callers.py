"""Callers of sessions that die with everything open: all they held is free within one lease."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.end_to_end import wire
from tests.npu import environment

from .crashing import crash
from .servers import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .servers import AttackedServer, Figure, Start

LEASE = 3.0
SLACK = 20.0
"""Seconds beyond the lease, on a machine that is busy."""
DIGESTS, LIMIT = 4 * MIB, 512 * MIB
FLAGS = f"--session-lease={LEASE}", f"--digest-cache-bytes={DIGESTS}", "--queue-length=64"
AT_ONCE, KILLED = 20, 1000
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


@contextmanager
def most_held(server: AttackedServer) -> Iterator[list[int]]:
    """The most bytes that the server ever held, looked at every tenth of a second."""
    done, most = threading.Event(), [0]

    def look() -> None:
        while not done.wait(0.1):
            most[0] = max(most[0], held(server).bytes)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def seconds_until_free(server: AttackedServer, most: Held) -> float:
    """Until the server holds no more than that; infinite where that takes longer than it may."""
    return server.seconds_until(
        lambda: all(now <= bound for now, bound in zip(held(server), most, strict=True)),
        LEASE + SLACK,
    )


@pytest.mark.more
@pytest.mark.parametrize("count", [AT_ONCE, pytest.param(KILLED, marks=pytest.mark.long)])
def test_all_that_killed_callers_held_is_free_within_one_lease(
    start: Start, figure: Figure, count: int
) -> None:
    with start(*FLAGS, limit=LIMIT) as server:
        threads, descriptors = server.threads(), server.descriptors()
        with most_held(server) as most:
            crash(server.target, count, AT_ONCE, seed=1)
        seconds = seconds_until_free(server, Held(0, DIGESTS, 0))
        figure(
            f"{count} killed callers",
            f"at most {most[0] / MIB:.0f} MiB, free after {seconds:.1f} s of a lease of {LEASE:g} "
            f"s, {held(server)}, threads {threads} -> {server.threads()}, "
            f"descriptors {descriptors} -> {server.descriptors()}; {server.show_peak()}",
        )
        assert most[0] > DIGESTS, "they held something"
        assert seconds < LEASE + SLACK
        assert server.threads() < threads + THREADS
        assert server.descriptors() <= descriptors + DESCRIPTORS
        assert '"traceback"' not in server.log.read_text()


@pytest.mark.long
def test_device_memory_of_killed_callers_is_free_within_one_lease(
    start: Start, figure: Figure, tmp_path: Path
) -> None:
    """Lanes keep memory of their own, as much as the largest call took: callers before show it."""
    report = tmp_path / "report.json"
    given = environment(NPUCALL_SIM_REPORT=str(report))
    with start("--device=cann:0", *FLAGS, limit=LIMIT, environment=given) as server:
        crash(server.target, 5 * AT_ONCE, AT_ONCE, seed=2)
        time.sleep(LEASE + 2.0)
        before = held(server)
        with most_held(server) as most:
            crash(server.target, KILLED, AT_ONCE, seed=3)
        seconds = seconds_until_free(server, Held(0, DIGESTS, before.device_bytes))
        figure(
            f"{KILLED} killed callers of a simulated NPU",
            f"at most {most[0] / MIB:.0f} MiB; free after {seconds:.1f} s: "
            f"{before} -> {held(server)}",
        )
        assert seconds < LEASE + SLACK
        server.process.terminate()
        assert server.process.wait(wire.PATIENCE) == 0
    told = json.loads(report.read_text())
    assert (told["violations"], told["live_objects"]) == ([], {})
