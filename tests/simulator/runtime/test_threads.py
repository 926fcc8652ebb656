"""Several threads, and work that takes time."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from .raw import EVENT_TIME_LINE, TO_DEVICE, TO_HOST, host

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann


def elapsed(cann: Cann, first: int, second: int) -> float:
    """Milliseconds between two events that are over."""
    milliseconds = ctypes.c_float()
    for event in (first, second):
        cann.ok(cann.aclrtSynchronizeEvent(event))
    cann.ok(cann.aclrtEventElapsedTime(ctypes.byref(milliseconds), first, second))
    return milliseconds.value


def mark(cann: Cann) -> int:
    """An event recorded on the default stream."""
    event = cann.event(EVENT_TIME_LINE)
    cann.ok(cann.aclrtRecordEvent(event, None))
    return event


class Caller:
    """Threads of one context that make a call each."""

    def __init__(self, cann: Cann, simulator: Simulator) -> None:
        self.cann, self.simulator = cann, simulator
        self.context = cann.made("aclrtGetCurrentContext")
        self.threads: list[Thread] = []
        self.go = Event()

    def add(self, function: str, *arguments: object) -> None:
        """Prepares a thread that will make this call."""
        ready = Event()

        def run() -> None:
            self.cann.ok(self.cann.aclrtSetCurrentContext(self.context))
            ready.set()
            self.go.wait(10)
            getattr(self.cann, function)(*arguments)

        thread = Thread(target=run)
        thread.start()
        ready.wait(10)
        self.threads.append(thread)

    def start(self, function: str) -> None:
        """Lets the threads call, and returns when all of them wait inside of ``function``."""
        calls = self.simulator.call_count(function) + len(self.threads)
        self.go.set()
        while self.simulator.call_count(function) < calls:
            pass
        for thread in self.threads:
            status = Path(f"/proc/self/task/{thread.native_id}/stat")
            while status.read_text().split()[2] != "S":
                pass

    def join(self) -> None:
        """Waits for the threads' ends."""
        for thread in self.threads:
            thread.join(10)


def test_an_executor_used_by_two_threads_at_a_time_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    caller = Caller(cann, simulator)
    caller.add("aclnnRelu", None, 0, executor, None)
    caller.add("aclnnRelu", None, 0, executor, None)
    with simulator.held():
        caller.start("aclnnRelu")
    caller.join()
    assert simulator.violations() == ["aclnnRelu: the executor is used by two threads at a time"]


def test_two_executors_of_one_cache_launched_at_a_time_are_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    *_, source, target = cann.relu()
    cann.ok(cann.aclnnRelu(None, 0, cann.planned("aclnnRelu", source, target).executor, None))
    caller = Caller(cann, simulator)
    for _ in range(2):
        cached = cann.planned("aclnnRelu", source, target).executor
        caller.add("aclnnRelu", None, 0, cached, None)
    with simulator.held():
        caller.start("aclnnRelu")
    caller.join()
    assert simulator.violations() == [
        "aclnnRelu: two executors of one thread's cache are launched at a time"
    ]


def test_an_executor_destroyed_while_it_runs_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    caller = Caller(cann, simulator)
    caller.add("aclnnRelu", None, 0, executor, None)
    with simulator.held():
        caller.start("aclnnRelu")
        cann.ok(cann.aclDestroyAclOpExecutor(executor))
    caller.join()
    assert simulator.violations() == ["aclDestroyAclOpExecutor: the executor is running"]


def test_a_stream_destroyed_while_a_thread_waits_for_it_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    stream = cann.stream()
    simulator.fail("aclrtMemsetAsync", status=507015, what="stall")
    cann.ok(cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, stream))
    caller = Caller(cann, simulator)
    caller.add("aclrtSynchronizeStream", stream)
    caller.start("aclrtSynchronizeStream")
    cann.ok(cann.aclrtSetOpExecuteTimeOutWithMs(1))
    cann.ok(cann.aclrtDestroyStream(stream))
    caller.join()
    assert simulator.violations() == [
        "aclrtDestroyStream: another thread still waits for the stream"
    ]


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
