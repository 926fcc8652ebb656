"""The three ways of copying a large call, on the simulator's clock: whole, in pieces, waiting.

A copy of pinned memory takes the time of its bytes at the bandwidth. One of ordinary memory takes
that, and the time in which the host moves its bytes: CANN's documents say that they are moved into
a buffer first. How well a driver does both at once is not known.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from cann_device import opened

if TYPE_CHECKING:
    from cann_device import Case, Npu, Simulated

MIB = 1 << 20
SIZE = 64 * MIB
"""Of each tensor: two go to the device, one comes back."""
WAYS = {"whole": 5 * SIZE, "in pieces": 8 * MIB, "waiting": 0}
"""The ``staging_limit`` by which such a call is copied so."""
BANDWIDTHS = 2 * 10**9, 10 * 10**9


class Copied(NamedTuple):
    """A way at a bandwidth: medians over rounds."""

    way: str
    bytes_per_second: int
    milliseconds: float
    ratio: float
    """To the time of copies that wait, in the same round."""
    copy_in: float
    """Milliseconds on the device's clock."""
    copy_out: float


def copies_in_turn(simulated: Simulated, rounds: int) -> list[Copied]:
    """Rounds of the same call in each way, at each bandwidth."""
    with ExitStack() as stack:
        npus = {
            way: stack.enter_context(opened(number, lanes=1, staging_limit=limit))
            for number, (way, limit) in enumerate(WAYS.items())
        }
        cases = {way: npu.kl_div_backward(SIZE) for way, npu in npus.items()}
        for way, npu in npus.items():
            npu.run(cases[way])  # has its memory then
        stack.callback(simulated.control.set_delays)
        return [
            copied
            for bandwidth in BANDWIDTHS
            for copied in _at(simulated, npus, cases, rounds, bandwidth)
        ]


def _at(
    simulated: Simulated, npus: dict[str, Npu], cases: dict[str, Case], rounds: int, bandwidth: int
) -> list[Copied]:
    simulated.control.set_delays(bytes_per_second=bandwidth)
    taken = [{way: _once(npu, cases[way]) for way, npu in npus.items()} for _ in range(rounds)]
    return [
        Copied(
            way,
            bandwidth,
            median(each[way][0] for each in taken),
            median(each[way][0] / each["waiting"][0] for each in taken),
            *(median(each[way][step] for each in taken) for step in (1, 2)),
        )
        for way in npus
    ]


def _once(npu: Npu, case: Case) -> tuple[float, float, float]:
    start = time.perf_counter_ns()
    phases = npu.run(case).phases
    spent = time.perf_counter_ns() - start
    return spent / 1e6, phases.copy_in_ns / 1e6, phases.copy_out_ns / 1e6
