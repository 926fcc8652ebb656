"""Streams: order, failures and their modes, timeouts, the end; and several threads."""

from collections.abc import Callable
from ctypes import byref, c_void_p
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import TypeAlias

import pytest

from .raw import Cann

KERNEL_FAILED = 507015
Failing: TypeAlias = Callable[..., None]


@pytest.fixture
def failing(cann: Cann) -> Failing:
    """Submits work that fails to a stream."""

    def submit(stream: int | None, status: int = KERNEL_FAILED) -> None:
        cann.fail("aclrtMemsetAsync", status=status, what="at_sync")
        cann.ok(cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, stream))

    return submit


def test_a_stream_has_known_flags_only(cann: Cann) -> None:
    create = cann.libraries[0]["aclrtCreateStreamWithConfig"]
    assert [create(byref(c_void_p()), 0, flags) for flags in (3, 0x100)] == [0, 107000]


def test_in_continue_mode_a_failure_shows_once_at_its_own_stream_and_later_work_runs(
    cann: Cann, failing: Failing
) -> None:
    stream, other, address = cann.stream(), cann.stream(), cann.device(1)
    failing(stream)
    cann.ok(cann.aclrtMemsetAsync(address, 1, 7, 1, stream))
    answers = [cann.aclrtSynchronizeStream(each) for each in (other, stream, stream)]
    assert answers == [0, KERNEL_FAILED, 0]
    assert cann.download(address, 1) == b"\7"


@pytest.mark.parametrize("status", [507010, 507901, 507053, 107022])
def test_some_failures_stay_with_the_device(cann: Cann, failing: Failing, status: int) -> None:
    stream = cann.stream()
    failing(stream, status)
    answers = [cann.aclrtSynchronizeStream(stream) for _ in range(2)]
    answers.append(cann.aclrtMalloc(byref(c_void_p()), 4, 0))
    assert answers == [status] * 3
    assert cann.number("aclrtQueryDeviceStatus", 0) == 1


def test_a_timeout_answers_507046_and_work_goes_on(cann: Cann, stalled: int) -> None:
    assert cann.aclrtSynchronizeStreamWithTimeout(stalled, 1) == 507046
    address = cann.device(4)
    cann.ok(cann.aclrtMemsetAsync(address, 4, 0, 4, stalled))
    cann.aclrtFree(address)
    said = "aclrtFree: frees bytes that work of stream 1 may still write: nothing orders them"
    assert cann.violations() == [said]
    cann.clear_faults()
    assert cann.aclrtSynchronizeStreamWithTimeout(stalled, -1) == KERNEL_FAILED
    for milliseconds in (0, -2):
        assert cann.aclrtSynchronizeStreamWithTimeout(None, milliseconds) == 107000


def test_a_destroyed_stream_has_done_its_work_but_by_force(cann: Cann, stalled: int) -> None:
    stream, address, other = cann.stream(), cann.device(1), cann.device(4)
    cann.ok(cann.aclrtMemsetAsync(address, 1, 7, 1, stream))
    cann.ok(cann.aclrtDestroyStream(stream))
    assert cann.download(address, 1) == b"\7"
    cann.ok(cann.aclrtMemsetAsync(other, 4, 0, 4, stalled))
    cann.ok(cann.aclrtDestroyStreamForce(stalled))
    cann.ok(cann.aclrtFree(other))
    assert cann.violations() == []


class Caller:
    """Threads of one context that make a call each."""

    def __init__(self, cann: Cann) -> None:
        self.cann = cann
        self.context = cann.made("aclrtGetCurrentContext")
        self.threads: list[Thread] = []
        self.go = Event()

    def add(self, function: str, *arguments: object) -> None:
        """Prepares a thread that will make this call."""
        ready = Event()

        def run() -> None:
            self.cann.ok(self.cann.aclrtSetCurrentContext(self.context))
            ready.set()
            self.go.wait(20)
            getattr(self.cann, function)(*arguments)

        thread = Thread(target=run)
        thread.start()
        assert ready.wait(20)
        self.threads.append(thread)

    def start(self, function: str) -> None:
        """Lets the threads call, and returns when all of them wait inside of ``function``."""
        calls = self.cann.call_count(function) + len(self.threads)
        self.go.set()
        while self.cann.call_count(function) < calls:
            sleep(0.001)
        for thread in self.threads:
            status = Path(f"/proc/self/task/{thread.native_id}/stat")
            while status.read_text().split()[2] != "S":
                sleep(0.001)

    def join(self) -> None:
        """Waits for the threads' ends."""
        for thread in self.threads:
            thread.join(20)


def test_executors_of_one_cache_used_by_two_threads_at_a_time_are_a_violation(cann: Cann) -> None:
    caller = Caller(cann)
    executor, tensors = cann.planned_relu()
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    for _ in range(2):
        executor = cann.planned("aclnnRelu", *tensors).executor or 0
        caller.add("aclnnRelu", None, 0, executor, None)
    with cann.held():
        caller.start("aclnnRelu")
    caller.join()
    said = "two executors of one thread's cache are launched at a time"
    assert cann.violations() == [f"aclnnRelu: {said}"]


def test_a_stream_destroyed_while_a_thread_waits_for_it_is_a_violation(
    cann: Cann, stalled: int
) -> None:
    caller = Caller(cann)
    caller.add("aclrtSynchronizeStream", stalled)
    caller.start("aclrtSynchronizeStream")
    cann.ok(cann.aclrtSetOpExecuteTimeOutWithMs(1))
    cann.ok(cann.aclrtDestroyStream(stalled))
    caller.join()
    said = "aclrtDestroyStream: another thread still waits for the stream"
    assert cann.violations() == [said]
