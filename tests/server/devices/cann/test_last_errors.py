"""The thread's last error: asked for before the text, and none of an earlier function counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from npucall.errors import DeviceError
from npucall.places import StepOutput
from npucall_server.devices.base import BrokenDeviceError, Step

from .faults import failure
from .opened import FreeTurn
from .situations import l1

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asked import Asked
    from .opened import Opened

HEARTBEAT, RUNTIME_ERROR, INNER_ERROR = 507010, 361001, 561000
LAUNCH = "aclnnL1LossBackward"
PLAN = f"{LAUNCH}GetWorkspaceSize"


class Tolerated(NamedTuple):
    """A function that leaves an error behind, and the one that fails later."""

    function: str
    then: str


EARLIER = [Tolerated("aclrtRecordEvent", PLAN), Tolerated(PLAN, LAUNCH), Tolerated(LAUNCH, PLAN)]


def twice(device: Opened, asked: Asked) -> None:
    """The same call, a second time after a first."""
    for _ in range(2):
        device.run(asked)


def in_a_program(device: Opened, asked: Asked) -> None:
    """Two steps, the second on what the first gives."""
    name = next(iter(asked.call.outputs))
    later = {**asked.storages, "grad_output": StepOutput(0, name)}
    steps = [Step(asked.call, asked.storages), Step(asked.call, later)]
    device.device.run_program(steps, FreeTurn())


@pytest.mark.parametrize("work", [twice, in_a_program])
@pytest.mark.parametrize("earlier", EARLIER, ids=str)
@pytest.mark.parametrize("status", [RUNTIME_ERROR, INNER_ERROR])
def test_an_error_that_was_tolerated_is_not_the_cause_of_a_later_one(
    device: Opened,
    earlier: Tolerated,
    status: int,
    work: Callable[[Opened, Asked], None],
) -> None:
    asked = l1(device.device)
    assert device.serves(asked)
    device.simulator.fail(earlier.function, status=HEARTBEAT, what="tolerated")
    device.simulator.fail(earlier.then, 1 + (earlier.function == LAUNCH), status=status)
    error = failure(lambda: work(device, asked))
    assert type(error) is DeviceError
    assert error.details["device_status"] == str(status)
    assert device.lost == []
    assert device.serves(asked)


@pytest.mark.parametrize("function", [PLAN, LAUNCH])
@pytest.mark.parametrize("status", [RUNTIME_ERROR, INNER_ERROR])
def test_the_runtime_s_error_behind_that_of_a_phase_decides(
    device: Opened, function: str, status: int
) -> None:
    asked = l1(device.device)
    device.simulator.fail(function, status=HEARTBEAT, what="tolerated")
    device.simulator.fail(function, status=status)
    error = failure(lambda: device.run(asked))
    assert type(error) is BrokenDeviceError
    assert error.details["device_status"] == str(HEARTBEAT)
    assert f"[{function}] the simulator was told to fail here" in error.details["driver_message"]
    assert len(device.lost) == 1
    device.abandon()


def test_functions_of_descriptors_have_no_error_of_the_runtime_behind_theirs(
    device: Opened,
) -> None:
    asked = l1(device.device)
    assert device.serves(asked)
    device.simulator.fail(LAUNCH, status=HEARTBEAT, what="tolerated")
    assert device.serves(asked)
    device.simulator.fail("aclDestroyTensor", status=INNER_ERROR)
    error = failure(device.close)
    assert error is not None
    assert error.details["device_status"] == str(INNER_ERROR)
    device.abandon()
