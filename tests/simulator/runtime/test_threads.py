"""Several threads, and work that takes time."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from .raw import EVENT_TIME_LINE, TO_DEVICE, TO_HOST, host

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann


def elapsed(cann: Cann, first: int, second: int) -> float:
    """Milliseconds between two events that are over."""
    milliseconds = ctypes.c_float()
    cann.ok(cann.aclrtEventElapsedTime(ctypes.byref(milliseconds), first, second))
    return milliseconds.value


def mark(cann: Cann) -> int:
    """An event recorded on the default stream."""
    event = cann.event(EVENT_TIME_LINE)
    cann.ok(cann.aclrtRecordEvent(event, None))
    return event


def test_a_kernel_takes_as_long_as_it_was_told(cann: Cann, simulator: Simulator) -> None:
    simulator.set_delays(kernel_us=2000)
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    first = mark(cann)
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    second = mark(cann)
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert elapsed(cann, first, second) >= 2


def test_a_copy_takes_as_long_as_the_bandwidth_says(cann: Cann, simulator: Simulator) -> None:
    simulator.set_delays(bytes_per_second=1_000_000)
    source, target = cann.pinned(b"-" * 3000), cann.device(3000)
    first = mark(cann)
    cann.ok(cann.aclrtMemcpyAsync(target, 3000, source, 3000, TO_DEVICE, None))
    second = mark(cann)
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert elapsed(cann, first, second) >= 3


def test_threads_with_a_stream_each_do_not_disturb_each_other(
    cann: Cann, simulator: Simulator
) -> None:
    context = cann.made("aclrtGetCurrentContext")

    def serve(number: int) -> bool:
        cann.ok(cann.aclrtSetCurrentContext(context))
        stream, staging, address = cann.stream(), cann.pinned(b"-" * 64), cann.device(64)
        whole = True
        for step in range(50):
            content = bytes([number, step]) * 32
            ctypes.memmove(staging, content, 64)
            cann.ok(cann.aclrtMemcpyAsync(address, 64, staging, 64, TO_DEVICE, stream))
            cann.ok(cann.aclrtMemcpyAsync(staging, 64, address, 64, TO_HOST, stream))
            cann.ok(cann.aclrtSynchronizeStream(stream))
            whole = whole and host(staging, 64) == content
        cann.ok(cann.aclrtDestroyStream(stream))
        cann.ok(cann.aclrtFree(address))
        cann.ok(cann.aclrtFreeHost(staging))
        return whole

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(serve, range(4))) == [True] * 4
    assert simulator.violations() == []
    assert simulator.live_objects() == {"aclrtSetDevice": 1}
