"""Steps of programs that fail: run again, named, or the end of the device."""

from functools import partial

import pytest
from tests.server.devices.programs import differences

from npucall.errors import DeviceError, NpucallError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.program import pace_of

from .calls import l1
from .faults import KERNEL_FAILED, NO_MEMORY, OVERFLOW, SYNCHRONISE, failure
from .opened import FakeTurn, Opened
from .test_programs import chain

LAUNCH = "aclnnL1LossBackward"


def test_a_kernel_that_fails_once_is_run_again(device: Opened) -> None:
    """Nothing shows before the synchronise, and then nobody knows which step it was."""
    steps = chain(l1(device), 5)
    for launch in (1, 3, 5):
        device.simulator.fail(LAUNCH, launch, status=OVERFLOW, what="at_sync")
        assert differences(device.program(steps), steps) == []


def test_a_kernel_that_fails_again_and_a_launch_that_fails_name_their_step(device: Opened) -> None:
    case = l1(device)
    steps = chain(case, 5)
    again = [(step, (step + 1, 5 + step + 1), "at_sync") for step in (0, 2, 4)]
    for step, launches, what in [*again, (0, (1,), "return"), (3, (4,), "return")]:
        pace_of(case.call).nanoseconds = 1  # however long it took before: in one part
        for nth in launches:
            device.simulator.fail(LAUNCH, nth, status=OVERFLOW, what=what)
        error = failure(partial(device.program, steps))
        assert isinstance(error, NpucallError)
        assert error.details["step"] == str(step)
        assert differences(device.program(steps), steps) == []


def test_a_single_call_with_handles_names_no_step(device: Opened) -> None:
    case = l1(device)
    targets = {"grad_input": device.device.allocate(len(case.answers[0]))}
    for what in ("return", "at_sync"):
        device.simulator.fail(LAUNCH, status=OVERFLOW, what=what)
        error = failure(lambda: device.run(case, targets=targets))
        assert isinstance(error, DeviceError)
        assert "step" not in error.details
    targets["grad_input"].free()


@pytest.mark.parametrize("launch", [1, 3])
def test_a_device_that_breaks_in_a_program_is_lost_and_frees_nothing(
    device: Opened, launch: int
) -> None:
    case = l1(device)
    kept = device.device.allocate(len(case.answers[0]))
    steps = chain(case, 4, targets={"grad_input": kept})
    device.simulator.fail(LAUNCH, launch, status=KERNEL_FAILED, what="at_sync")
    assert isinstance(failure(lambda: device.program(steps)), BrokenDeviceError)
    live = device.simulator.live_objects()["aclrtMalloc"]
    kept.free()
    assert device.simulator.live_objects()["aclrtMalloc"] == live
    lost, violations = device.lost, device.simulator.violations()
    device.abandon()
    assert (len(lost), violations) == (1, [])


def test_a_stream_that_cannot_be_waited_for_keeps_handles(device: Opened) -> None:
    """Its work may still write them."""
    case = l1(device)
    kept = device.device.allocate(len(case.answers[0]))
    for _ in range(9):
        device.simulator.fail(SYNCHRONISE, status=OVERFLOW)
    steps = chain(case, 2, targets={"grad_input": kept})
    assert isinstance(failure(lambda: device.program(steps, FakeTurn(kept.free))), DeviceError)
    lost, violations = device.lost, device.simulator.violations()
    device.abandon()
    assert (len(lost), violations) == (1, [])


def test_lack_of_memory_in_the_middle_of_a_program_begins_it_again(device: Opened) -> None:
    case = l1(device)
    pace_of(case.call).nanoseconds = 11e6
    steps = chain(case, 3)
    fail = partial(device.simulator.fail, LAUNCH, status=NO_MEMORY)
    assert differences(device.program(steps, FakeTurn(pause=fail)), steps) == []
