"""Tries copies between host and device: in each way that the server knows, and for handles."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from npucall_server.commands.doctor.bench import check
from npucall_server.commands.doctor.failure import WRONG
from npucall_server.commands.doctor.finding import Finding, Section, fault, ok
from npucall_server.commands.doctor.kinds import call_of_shape

if TYPE_CHECKING:
    from npucall.declare.prepare import Prepared
    from npucall_server.commands.doctor.bench import Bench, Outcome
    from npucall_server.devices.cann.lane import Lane

ELEMENTS = 1 << 20
"""Elements of each tensor of the call. It is larger than one of the staging limits below."""
_WAYS = {
    "all at once through pinned memory": 1 << 26,
    "in pieces through pinned memory": 1 << 20,
    "from and to ordinary memory": 0,
}
"""Each way of copying, with the staging limit that leads to it."""
_HANDLE = 4 << 20
_CALLS = 20


def ways(bench: Bench) -> Iterator[Section | Finding]:
    """Runs one large call twice on a lane with each staging limit."""
    call = call_of_shape(bench.catalogue, bench.product, (ELEMENTS,))
    if call is None:
        return
    for way, limit in _WAYS.items():
        said = f"{call.bytes_in_flight >> 20} MiB {way} (staging_limit {limit >> 20} MiB)"
        yield Section("copies", f"copying {said}")
        lane = bench.open_lane(staging_limit=limit)
        try:
            outcomes = [check(lane, call, seed) for seed in (1, 2)]
        finally:
            if lane.broken is None:
                lane.close()
            else:
                bench.broken.append(lane.broken)
        settles = ("pinned-memory",) if limit else ()
        yield _copied(said, outcomes, settles)


def _copied(said: str, outcomes: list[Outcome], settles: tuple[str, ...]) -> Finding:
    wrong = next((outcome.wrong for outcome in outcomes if outcome.wrong), "")
    if wrong:
        return fault(f"{said}: {wrong}", WRONG, *settles)
    phases = outcomes[-1].phases
    if phases is None:
        return ok(f"{said}: right", *settles)
    there, back = phases.copy_in_ns / 1e6, phases.copy_out_ns / 1e6
    told = f"right; to the device in {there:.3g} ms, back in {back:.3g} ms"
    return ok(f"{said}: {told}", *settles, times={"copy in": there, "copy out": back})


def handles(bench: Bench) -> Iterator[Section | Finding]:
    """Writes a handle's memory and reads it back, while another thread runs calls."""
    yield Section("copies", "copying for a handle while a lane of another thread works")
    data = np.random.default_rng(7).integers(0, 256, _HANDLE, np.uint8).tobytes()
    with ThreadPoolExecutor(1) as other, bench.in_thread(bench.open_lane) as thread:
        beside = other.submit(thread.do, partial(_work, bench.trials[0].call))
        handle = bench.handles().allocate(_HANDLE)
        handle.write(0, data[: _HANDLE // 2])
        handle.write(_HANDLE // 2, data[_HANDLE // 2 :])
        found = bytes(handle.read(0, _HANDLE))
        handle.free()
        wrong = beside.result()
    if found != data:
        yield fault("a handle does not hold what was written into it", WRONG, "handle-copies")
    elif wrong:
        yield fault(f"a call beside the copies of a handle: {wrong}", WRONG, "handle-copies")
    else:
        yield ok(
            f"{_HANDLE >> 20} MiB of a handle, and {_CALLS} calls in another thread at the "
            "same time: right",
            "handle-copies", "main-thread",
        )  # fmt: skip


def _work(call: Prepared, lane: Lane) -> str:
    """Runs a call many times; answers what is wrong with the first wrong result."""
    found = (check(lane, call, seed).wrong for seed in range(_CALLS))
    return next(filter(None, found), "")
