"""Streams: order, failures and their modes, timeouts, the end; and several threads."""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_void_p
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import TypeAlias

import pytest

from .raw import STOP, TO_DEVICE, TO_HOST, Cann, host

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


def test_in_stop_mode_a_failure_shows_for_ever_and_no_work_is_taken(
    cann: Cann, failing: Failing
) -> None:
    stream, other, address = cann.stream(), cann.stream(), cann.device(4)
    cann.ok(cann.aclrtSetStreamFailureMode(stream, STOP))
    assert cann.aclrtSetStreamFailureMode(stream, STOP) == 107000  # it can be set once
    failing(stream)
    answers = [cann.aclrtSynchronizeStream(each) for each in (stream, stream, other)]
    assert answers == [KERNEL_FAILED] * 3
    assert cann.aclrtMemsetAsync(address, 4, 0, 4, stream) == KERNEL_FAILED


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


def test_a_kernel_that_does_not_end_is_stopped_by_its_timeout(cann: Cann, stalled: int) -> None:
    cann.ok(cann.aclrtSetOpExecuteTimeOutWithMs(10))
    assert cann.aclrtSynchronizeStream(stalled) == 507014


def test_a_query_tells_whether_work_is_left(cann: Cann, stalled: int) -> None:
    assert [cann.number("aclrtStreamQuery", s) for s in (stalled, cann.stream())] == [1, 0]
    cann.ok(cann.aclrtStreamAbort(stalled))
    assert cann.aclrtSynchronizeStream(stalled) == 107023


def test_a_destroyed_stream_has_done_its_work_but_by_force(cann: Cann, stalled: int) -> None:
    stream, address, other = cann.stream(), cann.device(1), cann.device(4)
    cann.ok(cann.aclrtMemsetAsync(address, 1, 7, 1, stream))
    cann.ok(cann.aclrtDestroyStream(stream))
    assert cann.download(address, 1) == b"\7"
    cann.ok(cann.aclrtMemsetAsync(other, 4, 0, 4, stalled))
    cann.ok(cann.aclrtDestroyStreamForce(stalled))
    cann.ok(cann.aclrtFree(other))
    assert cann.violations() == []


def test_a_synchronise_of_the_device_waits_for_all_streams(cann: Cann, failing: Failing) -> None:
    failing(cann.stream())
    assert cann.aclrtSynchronizeDevice() == KERNEL_FAILED
    failing(None)  # the default stream
    assert cann.aclrtSynchronizeStream(None) == KERNEL_FAILED


def test_a_host_function_runs_in_the_stream_s_order(cann: Cann) -> None:
    seen = []
    function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: seen.append("called"))
    stream = cann.stream()
    cann.ok(cann.aclrtLaunchHostFunc(stream, ctypes.cast(function, c_void_p), None))
    cann.ok(cann.aclrtSynchronizeStream(stream))
    assert seen == ["called"]


def test_ascend_310p_has_1024_streams_with_the_default_one(cann: Cann) -> None:
    cann.set_soc("Ascend310P3")
    answers = [cann.aclrtCreateStream(byref(c_void_p())) for _ in range(1024)]
    assert (set(answers[:1023]), answers[1023]) == ({0}, 207008)


# --- Several threads ------------------------------------------------------------------------------


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


@pytest.mark.parametrize("repeatable", [True, False])
def test_executors_used_by_two_threads_at_a_time_are_a_violation(
    cann: Cann, repeatable: bool
) -> None:
    """One that is repeatable, or two of one cache."""
    caller = Caller(cann)
    if repeatable:
        executors = [cann.repeatable_relu()[0]] * 2
        said = "the executor is used by two threads at a time"
    else:
        executor, tensors = cann.planned_relu()
        cann.ok(cann.aclnnRelu(None, 0, executor, None))
        executors = [cann.planned("aclnnRelu", *tensors).executor or 0 for _ in range(2)]
        said = "two executors of one thread's cache are launched at a time"
    for executor in executors:
        caller.add("aclnnRelu", None, 0, executor, None)
    with cann.held():
        caller.start("aclnnRelu")
    caller.join()
    assert cann.violations() == [f"aclnnRelu: {said}"]


def test_an_executor_destroyed_while_it_runs_is_a_violation(cann: Cann) -> None:
    executor, _ = cann.repeatable_relu()
    caller = Caller(cann)
    caller.add("aclnnRelu", None, 0, executor, None)
    with cann.held():
        caller.start("aclnnRelu")
        cann.ok(cann.aclDestroyAclOpExecutor(executor))
    caller.join()
    assert cann.violations() == ["aclDestroyAclOpExecutor: the executor is running"]


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


def test_threads_with_a_stream_each_do_not_disturb_each_other(cann: Cann) -> None:
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
    assert (cann.violations(), cann.live_objects()) == ([], {"aclrtSetDevice": 1})
