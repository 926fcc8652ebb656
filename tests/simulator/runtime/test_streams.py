"""Streams: order, failures and their modes, timeouts, the end."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

from .raw import STOP

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.control import Simulator

    from .raw import Cann

    Failing = Callable[..., None]

KERNEL_FAILED = 507015


@pytest.fixture
def failing(cann: Cann, simulator: Simulator) -> Failing:
    """Submits work that fails to a stream."""

    def submit(stream: int, status: int = KERNEL_FAILED) -> None:
        simulator.fail("aclrtMemsetAsync", status=status, what="at_sync")
        cann.ok(cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, stream))

    return submit


@pytest.fixture
def stalled(cann: Cann, simulator: Simulator) -> int:
    """A stream whose work does not end."""
    stream = cann.stream()
    simulator.fail("aclrtMemsetAsync", status=KERNEL_FAILED, what="stall")
    cann.ok(cann.aclrtMemsetAsync(cann.device(4), 4, 0, 4, stream))
    return stream


def test_a_stream_has_known_flags_only(cann: Cann) -> None:
    made = ctypes.c_void_p()
    create = cann.libraries[0]["aclrtCreateStreamWithConfig"]
    assert [create(ctypes.byref(made), 0, 3), create(ctypes.byref(made), 0, 0x100)] == [0, 107000]


def test_a_failure_shows_at_the_synchronise_and_not_before(cann: Cann, failing: Failing) -> None:
    stream = cann.stream()
    failing(stream)
    assert cann.aclrtSynchronizeStream(stream) == KERNEL_FAILED


def test_a_failure_is_answered_once_in_continue_mode(cann: Cann, failing: Failing) -> None:
    stream = cann.stream()
    failing(stream)
    cann.aclrtSynchronizeStream(stream)
    assert cann.aclrtSynchronizeStream(stream) == 0


def test_a_failure_shows_on_its_own_stream_in_continue_mode(cann: Cann, failing: Failing) -> None:
    stream, other = cann.stream(), cann.stream()
    failing(stream)
    assert [cann.aclrtSynchronizeStream(other), cann.aclrtSynchronizeStream(stream)] == [
        0,
        KERNEL_FAILED,
    ]


def test_work_after_a_failure_still_runs_in_continue_mode(cann: Cann, failing: Failing) -> None:
    stream, address = cann.stream(), cann.device(1)
    failing(stream)
    cann.ok(cann.aclrtMemsetAsync(address, 1, 7, 1, stream))
    cann.aclrtSynchronizeStream(stream)
    assert cann.download(address, 1) == b"\7"


def test_a_failure_is_answered_for_ever_in_stop_mode(cann: Cann, failing: Failing) -> None:
    stream, other = cann.stream(), cann.stream()
    cann.ok(cann.aclrtSetStreamFailureMode(stream, STOP))
    failing(stream)
    answers = [cann.aclrtSynchronizeStream(s) for s in (stream, stream, other)]
    assert answers == [KERNEL_FAILED] * 3


def test_no_work_is_taken_after_a_failure_in_stop_mode(cann: Cann, failing: Failing) -> None:
    stream, address = cann.stream(), cann.device(4)
    cann.ok(cann.aclrtSetStreamFailureMode(stream, STOP))
    failing(stream)
    cann.aclrtSynchronizeStream(stream)
    assert cann.aclrtMemsetAsync(address, 4, 0, 4, stream) == KERNEL_FAILED


def test_the_failure_mode_can_be_set_once(cann: Cann) -> None:
    stream = cann.stream()
    cann.ok(cann.aclrtSetStreamFailureMode(stream, STOP))
    assert cann.aclrtSetStreamFailureMode(stream, STOP) == 107000


@pytest.mark.parametrize("status", [507010, 507901, 507053, 107022])
def test_some_failures_stay_with_the_device(cann: Cann, failing: Failing, status: int) -> None:
    stream = cann.stream()
    failing(stream, status)
    cann.aclrtSynchronizeStream(stream)
    made = ctypes.c_void_p()
    assert [
        cann.aclrtSynchronizeStream(stream),
        cann.aclrtMalloc(ctypes.byref(made), 4, 0),
        cann.number("aclrtQueryDeviceStatus", 0),
    ] == [status, status, 1]


def test_a_timeout_answers_507046(cann: Cann, stalled: int) -> None:
    assert cann.aclrtSynchronizeStreamWithTimeout(stalled, 1) == 507046


def test_work_goes_on_after_a_timeout(cann: Cann, simulator: Simulator, stalled: int) -> None:
    cann.aclrtSynchronizeStreamWithTimeout(stalled, 1)
    simulator.clear_faults()
    assert cann.aclrtSynchronizeStreamWithTimeout(stalled, -1) == KERNEL_FAILED


def test_memory_freed_after_a_timeout_is_a_violation(
    cann: Cann, simulator: Simulator, stalled: int
) -> None:
    address = cann.device(4)
    cann.ok(cann.aclrtMemsetAsync(address, 4, 0, 4, stalled))
    cann.aclrtSynchronizeStreamWithTimeout(stalled, 1)
    cann.aclrtFree(address)
    assert simulator.violations() == [
        "aclrtFree: frees bytes that work of stream 1 may still write: nothing orders them"
    ]


@pytest.mark.parametrize("milliseconds", [0, -2])
def test_9_takes_no_timeout_of_0_or_below_minus_1(cann: Cann, milliseconds: int) -> None:
    assert cann.aclrtSynchronizeStreamWithTimeout(None, milliseconds) == 107000


def test_a_kernel_that_does_not_end_is_stopped_by_its_timeout(cann: Cann, stalled: int) -> None:
    cann.ok(cann.aclrtSetOpExecuteTimeOutWithMs(10))
    assert cann.aclrtSynchronizeStream(stalled) == 507014


def test_a_query_tells_whether_work_is_left(cann: Cann, stalled: int) -> None:
    assert [
        cann.number("aclrtStreamQuery", stalled),
        cann.number("aclrtStreamQuery", cann.stream()),
    ] == [1, 0]


def test_an_aborted_stream_answers_107023(cann: Cann, stalled: int) -> None:
    cann.ok(cann.aclrtStreamAbort(stalled))
    assert cann.aclrtSynchronizeStream(stalled) == 107023


def test_a_destroyed_stream_has_done_its_work(cann: Cann, simulator: Simulator) -> None:
    stream, address = cann.stream(), cann.device(1)
    cann.ok(cann.aclrtMemsetAsync(address, 1, 7, 1, stream))
    cann.ok(cann.aclrtDestroyStream(stream))
    assert (cann.download(address, 1), simulator.violations()) == (b"\7", [])


def test_a_stream_destroyed_by_force_does_not_wait(
    cann: Cann, simulator: Simulator, stalled: int
) -> None:
    address = cann.device(4)
    cann.ok(cann.aclrtMemsetAsync(address, 4, 0, 4, stalled))
    cann.ok(cann.aclrtDestroyStreamForce(stalled))
    cann.ok(cann.aclrtFree(address))
    assert simulator.violations() == []


def test_a_synchronise_of_the_device_waits_for_all_streams(cann: Cann, failing: Failing) -> None:
    failing(cann.stream())
    assert cann.aclrtSynchronizeDevice() == KERNEL_FAILED


def test_null_is_the_default_stream(cann: Cann, failing: Failing) -> None:
    failing(None)
    assert cann.aclrtSynchronizeStream(None) == KERNEL_FAILED


def test_a_host_function_runs_in_the_stream_s_order(cann: Cann) -> None:
    seen = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append("called"))
    stream = cann.stream()
    cann.ok(cann.aclrtLaunchHostFunc(stream, ctypes.cast(function, ctypes.c_void_p), None))
    cann.ok(cann.aclrtSynchronizeStream(stream))
    assert seen == ["called"]


def test_ascend_310p_has_1024_streams_with_the_default_one(
    cann: Cann, simulator: Simulator
) -> None:
    simulator.set_soc("Ascend310P3")
    made = ctypes.c_void_p()
    answers = [cann.aclrtCreateStream(ctypes.byref(made)) for _ in range(1024)]
    assert (set(answers[:1023]), answers[1023]) == ({0}, 207008)
