"""Times on the device's clock; a device that cannot time runs calls all the same."""

from collections.abc import Callable, Iterator
from ctypes import c_void_p

import pytest
from tests.simulator.control import Simulator

from npucall.errors import OperatorUnavailableError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.events import StreamEvents
from npucall_server.devices.cann.runtime import DeviceContext
from npucall_server.devices.stopwatch import Stopwatch

from .calls import l1
from .faults import HEARTBEAT, TIMING
from .opened import Open, Opened

FEATURE_NOT_SUPPORTED = 207000
DEFAULT_STREAM = c_void_p()
MARKS = 3


class Timed:
    """A stopwatch of the default stream, and what it said."""

    def __init__(self, context: DeviceContext) -> None:
        self.notes: list[str] = []
        self.acl = context.libraries.acl
        self.watch = Stopwatch(StreamEvents(self.acl, DEFAULT_STREAM), MARKS, self.notes.append)

    def lap(self) -> int:
        """Marks all, waits, and answers what lies between the first and the last."""
        for index in range(MARKS):
            self.watch.mark(index)
        self.acl.aclrtSynchronizeStreamWithTimeout(DEFAULT_STREAM, 20_000)
        return self.watch.between(0, MARKS - 1)


@pytest.fixture
def make(context: DeviceContext) -> Iterator[Callable[[], Timed]]:
    made: list[Timed] = []

    def timed() -> Timed:
        made.append(Timed(context))
        return made[-1]

    yield timed
    for each in made:
        each.watch.close()


def test_a_kernel_s_time_is_that_of_the_device(device: Opened) -> None:
    case = l1(device)
    device.simulator.set_delays(kernel_us=3000)
    phases = device.run(case).phases
    assert phases is not None
    assert phases.run_ns >= 3_000_000
    assert min(phases) >= 0


def test_an_event_is_waited_for_once_each_time_that_it_is_recorded(
    make: Callable[[], Timed], simulator: Simulator
) -> None:
    timed = make()
    for laps in (1, 2):
        assert timed.lap() >= 0
        timed.watch.between(0, 1)
        assert simulator.call_count("aclrtSynchronizeEvent") == laps * MARKS
    assert timed.watch.between(MARKS - 1, 0) == 0  # no time is negative
    assert timed.notes == []


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


def test_a_device_that_breaks_while_it_times_is_broken(
    make: Callable[[], Timed], simulator: Simulator
) -> None:
    timed = make()
    simulator.fail("aclrtRecordEvent", status=HEARTBEAT)
    with pytest.raises(BrokenDeviceError):
        timed.watch.mark(0)
    assert timed.notes == []


def test_all_events_that_were_made_are_destroyed(
    make: Callable[[], Timed], simulator: Simulator
) -> None:
    """Though others could not be made, and though one cannot be destroyed."""
    simulator.fail("aclrtCreateEventExWithFlag", 2, status=FEATURE_NOT_SUPPORTED)
    timed = make()
    assert (simulator.live_objects()["aclrtEvent"], len(timed.notes)) == (1, 1)
    timed.watch.close()
    assert "aclrtEvent" not in simulator.live_objects()
    timed = make()
    simulator.fail("aclrtDestroyEvent", status=FEATURE_NOT_SUPPORTED)
    with pytest.raises(OperatorUnavailableError):
        timed.watch.close()
    assert "aclrtEvent" not in simulator.live_objects()
