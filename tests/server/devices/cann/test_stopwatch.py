"""Times on the device's clock; a device that cannot time runs calls all the same."""

from ctypes import c_void_p

import pytest
from tests.simulator.control import Simulator

from npucall_server.devices.cann.runtime import DeviceContext
from npucall_server.devices.cann.stopwatch import Stopwatch

from .calls import l1
from .faults import TIMING
from .opened import Open, Opened

FEATURE_NOT_SUPPORTED = 207000
DEFAULT_STREAM = c_void_p()
MARKS = 3


def test_a_kernel_s_time_is_that_of_the_device(device: Opened) -> None:
    case = l1(device)
    device.simulator.set_delays(kernel_us=3000)
    phases = device.run(case).phases
    assert phases is not None
    assert phases.run_ns >= 3_000_000
    assert min(phases) >= 0


def test_an_event_is_waited_for_once_each_time_that_it_is_recorded(
    context: DeviceContext, simulator: Simulator
) -> None:
    notes: list[str] = []
    acl = context.libraries.acl
    watch = Stopwatch(acl, DEFAULT_STREAM, MARKS, notes.append)
    for laps in (1, 2):
        for index in range(MARKS):
            watch.mark(index)
        acl.aclrtSynchronizeStreamWithTimeout(DEFAULT_STREAM, 20_000)
        assert min(watch.between(0, MARKS - 1), watch.between(0, 1)) >= 0
        assert simulator.call_count("aclrtSynchronizeEvent") == laps * MARKS
    assert watch.between(MARKS - 1, 0) == 0  # no time is negative
    watch.close()
    assert notes == []


@pytest.mark.parametrize("function", sorted(TIMING))
def test_without_timing_calls_run_and_it_is_said_once(
    simulator: Simulator, open_device: Open, function: str
) -> None:
    simulator.fail(function, status=FEATURE_NOT_SUPPORTED)
    device = open_device()
    case = l1(device)
    phases = [device.run(case).phases for _ in range(3)]
    assert device.serves(case)
    assert {p and (p.copy_in_ns, p.run_ns, p.copy_out_ns) for p in phases} == {(0, 0, 0)}
    (note,) = device.notes
    assert note.startswith(f"nothing is timed on the device from here on: {function}: ")
