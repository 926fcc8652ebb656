"""A lane that had to leave a first phase without its second one: it launches nothing any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall.errors import DeviceError, OutOfMemoryError
from npucall_server.devices.base import BrokenDeviceError

from .opened import FreeTurn
from .situations import l1
from .test_programs import answer_of_chain, chain

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asked import Asked
    from .opened import Opened

    Open = Callable[..., Opened]

STREAM = "aclrtCreateStreamWithConfig"
NO_MEMORY, REFUSED, HEARTBEAT = 207001, 207012, 507010
OFTEN = 9
LARGE, FOR_TENSORS = 600_000, 14 << 20
"""Elements of 4 bytes, and device memory in which they fit without their workspace."""


@pytest.fixture(params=["unguarded", "refused"])
def device(
    request: pytest.FixtureRequest, open_device: Open, unrun: Callable[[str], None]
) -> Opened:
    """With what CANN may do with an executor that never ran."""
    unrun(request.param)
    return open_device()


def without_workspace(device: Opened, times: int = 1, status: int = NO_MEMORY) -> FreeTurn:
    """A turn for a call behind whose first phase memory cannot be allocated, so many times.

    What is allocated next once ``check`` has been called is the workspace.
    """
    left = [times]

    def check() -> None:
        if left[0]:
            left[0] -= 1
            device.simulator.fail("aclrtMalloc", status=status)

    return FreeTurn(check)


def answers(device: Opened, asked: Asked, turn: FreeTurn) -> bool:
    outputs = device.device.run(asked.call, asked.storages, turn).outputs
    return [bytes(output) for output in outputs] == asked.answers  # type: ignore[arg-type]


def streams(device: Opened) -> int:
    """Lanes that have been opened."""
    return device.simulator.call_count(STREAM)


def end(device: Opened) -> None:
    """Closes it; executors that CANN refused to destroy are all that may be left."""
    device.close()
    assert {*device.simulator.live_objects()} <= {"aclOpExecutor"}
    assert device.simulator.violations() == []
    device.simulator.reset()


def test_the_second_try_is_made_on_another_lane(device: Opened) -> None:
    asked = l1(device.device)
    assert answers(device, asked, without_workspace(device))
    assert (streams(device), device.lost) == (2, [])
    assert device.serves(asked)
    assert streams(device) == 2
    end(device)


def test_lack_of_memory_that_lasts_is_told_and_spends_one_lane(device: Opened) -> None:
    asked = l1(device.device, LARGE)
    device.simulator.set_memory(FOR_TENSORS)
    for _ in range(3):
        with pytest.raises(OutOfMemoryError, match="aclrtMalloc"):
            device.run(asked)
    assert device.serves(l1(device.device))
    assert (streams(device), device.lost) == (2, [])
    end(device)


def test_another_failure_there_is_told_and_the_next_call_is_right(device: Opened) -> None:
    asked = l1(device.device)
    with pytest.raises(DeviceError, match=str(REFUSED)):
        answers(device, asked, without_workspace(device, status=REFUSED))
    assert device.serves(asked)
    assert streams(device) == 2
    end(device)


@pytest.mark.parametrize("times", [1, OFTEN])
def test_a_program_begins_again_on_another_lane(device: Opened, times: int) -> None:
    asked = l1(device.device)
    turn = without_workspace(device, times)
    if times == 1:
        ran = device.device.run_program(chain(asked, 3), turn)
        assert bytes(ran.outputs[-1][0]) == answer_of_chain(asked, 3)  # type: ignore[arg-type]
    else:
        with pytest.raises(OutOfMemoryError) as caught:
            device.device.run_program(chain(asked, 3), turn)
        assert caught.value.details["step"] == "0"
        device.simulator.clear_faults()
    again = device.device.run_program(chain(asked, 3), FreeTurn())
    assert bytes(again.outputs[-1][0]) == answer_of_chain(asked, 3)  # type: ignore[arg-type]
    end(device)


def test_nobody_waits_for_the_end_of_its_thread(
    open_device: Open, monkeypatch: pytest.MonkeyPatch, unrun: Callable[[str], None]
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_THREAD_END_MS", "1500")
    unrun("unguarded")
    device = open_device()
    asked = l1(device.device)
    assert answers(device, asked, without_workspace(device))
    assert device.serves(asked)
    assert device.device._ending.wait(0) == 1


def test_a_lane_that_cannot_be_opened_anew_is_tried_again_by_the_next_call(device: Opened) -> None:
    asked = l1(device.device)
    turn = without_workspace(device, status=REFUSED)
    with pytest.raises(DeviceError):
        answers(device, asked, turn)
    device.simulator.fail(STREAM, status=REFUSED)
    with pytest.raises(DeviceError, match=STREAM):
        device.serves(asked)
    assert device.serves(asked)
    assert streams(device) == 3
    end(device)


def test_a_lane_that_hangs_while_it_is_opened_anew_ends_the_device(open_device: Open) -> None:
    device = open_device(device_timeout=0.05)
    asked = l1(device.device)
    with pytest.raises(DeviceError):
        answers(device, asked, without_workspace(device, status=REFUSED))
    device.simulator.fail(STREAM, status=HEARTBEAT, what="hang")
    with pytest.raises(BrokenDeviceError, match="device_timeout"):
        device.serves(asked)
    assert len(device.lost) == 1
    device.abandon()
