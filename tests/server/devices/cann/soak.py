"""A hundred thousand calls: nothing is allocated any more, and memory does not grow.

Run by ``test_soak.py`` in a process of its own.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from . import situations

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from .asked import Asked
    from .opened import Opened
    from .situations import Ask

    Open = Callable[..., Opened]

LANES, CALLERS = 2, 3
WARM_UP, CALLS = 5_000, 100_000
MIB = 2**20
ASKS: list[Ask] = [
    *(partial(situations.l1, count=count) for count in (1, 100, 1000, 5000)),
    situations.unread,
    situations.rsub,
    situations.cat,
    situations.add_scalars,
    situations.in_place,
]
ALLOCATIONS = ("device_allocations", "pinned_allocations")


def test_after_a_while_nothing_is_allocated_and_memory_does_not_grow(
    open_device: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    device = open_device(lanes=LANES)
    device.simulator.set_kernels("none")
    asks = [ask(device.device) for ask in ASKS]
    run(device, asks, WARM_UP)
    allocated, resident = allocations(device), resident_bytes()
    run(device, asks, CALLS)
    grown = resident_bytes() - resident
    with capsys.disabled():
        print(f"{CALLS} calls: memory grew by {grown / MIB:.2f} MiB, from {resident / MIB:.0f} MiB")
    assert allocations(device) == allocated
    assert grown < 2 * MIB
    device.close()
    assert device.simulator.live_objects() == {}


def run(device: Opened, asks: list[Asked], calls: int) -> None:
    """Makes so many calls from several threads."""

    def caller() -> None:
        for asked in islice(cycle(asks), calls // CALLERS):
            device.run(asked)

    with ThreadPoolExecutor(CALLERS) as callers:
        for done in [callers.submit(caller) for _ in range(CALLERS)]:
            done.result()


def allocations(device: Opened) -> list[int]:
    counters = device.simulator.counters()
    return [counters[name] for name in ALLOCATIONS]


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
