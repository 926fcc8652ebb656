"""Work that fails after it has been submitted: the synchronise says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall.errors import DeviceLostError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann.status_table import STATUSES, Fate

from .faults import KINDS, NULL_POINTER, failure
from .situations import FOUR_PIECES, l1, unread

if TYPE_CHECKING:
    from collections.abc import Callable

    from .opened import Opened

    Open = Callable[..., Opened]

DEFAULT = 1 << 20
HEARTBEAT, KERNEL_FAILED, OVERFLOW = 507010, 507015, 207016
SYNCHRONISE = "aclrtSynchronizeStreamWithTimeout"


@pytest.mark.parametrize("limit", [DEFAULT, FOUR_PIECES])
@pytest.mark.parametrize(
    "function", ["aclnnKlDivBackward", "aclnnInplaceZero", "aclrtMemcpyAsync", "aclrtMemsetAsync"]
)
def test_a_failure_of_submitted_work_names_the_synchronise(
    open_device: Open, function: str, limit: int
) -> None:
    assert_told_by(SYNCHRONISE, open_device(staging_limit=limit), function)


@pytest.mark.parametrize("function", ["aclnnKlDivBackward", "aclnnInplaceZero", "aclrtMemsetAsync"])
def test_so_it_does_where_copies_wait(open_device: Open, function: str) -> None:
    assert_told_by(SYNCHRONISE, open_device(staging_limit=0), function)


def assert_told_by(teller: str, device: Opened, function: str) -> None:
    asked = unread(device.device)
    device.simulator.fail(function, status=OVERFLOW, what="at_sync")
    error = failure(lambda: device.run(asked))
    assert error is not None
    assert (error.details["function"], error.details["device_status"]) == (teller, str(OVERFLOW))
    assert "the simulator was told to fail here" in error.details["driver_message"]
    assert device.serves(asked)


@pytest.mark.parametrize("fate", [Fate.ARGUMENT, Fate.UNAVAILABLE, Fate.CALL], ids=str)
def test_a_kernel_that_fails_with_any_such_status_fails_one_call(
    device: Opened, fate: Fate
) -> None:
    asked = l1(device.device)
    kinds = {}
    for status in statuses(fate):
        device.simulator.fail("aclnnL1LossBackward", status=status, what="at_sync")
        kinds[status] = type(failure(lambda: device.run(asked)))
        assert device.serves(asked)
    kinds.pop(NULL_POINTER, None)
    assert kinds == dict.fromkeys(kinds, KINDS[fate])


def test_a_kernel_without_memory_runs_once_more(device: Opened) -> None:
    asked = l1(device.device)
    for status in statuses(Fate.MEMORY):
        device.simulator.fail("aclnnL1LossBackward", status=status, what="at_sync")
        assert device.serves(asked)


def test_a_kernel_that_fails_with_any_such_status_breaks_the_device(open_device: Open) -> None:
    lost = {}
    for status in statuses(Fate.BROKEN):
        opened = open_device()
        asked = l1(opened.device)
        opened.simulator.fail("aclnnL1LossBackward", status=status, what="at_sync")
        with pytest.raises(BrokenDeviceError):
            opened.run(asked)
        lost[status] = [error.details["device_status"] for error in opened.lost]
        opened.abandon()
    assert lost == {status: [str(status)] for status in lost}


def test_a_broken_device_runs_nothing_more(device: Opened) -> None:
    asked = l1(device.device)
    device.simulator.fail("aclnnL1LossBackward", status=KERNEL_FAILED, what="at_sync")
    with pytest.raises(BrokenDeviceError):
        device.run(asked)

    def more() -> None:
        for again in (device.run, device.plan):
            with pytest.raises(DeviceLostError, match="repeat the call"):
                again(asked)

    assert (device.functions(more), len(device.lost)) == ([], 1)
    device.abandon()


def test_work_that_does_not_end_in_time_breaks_the_device(open_device: Open) -> None:
    device = open_device(device_timeout=0.05)
    asked = l1(device.device)
    device.simulator.fail("aclnnL1LossBackward", status=KERNEL_FAILED, what="stall")
    with pytest.raises(BrokenDeviceError, match=r"507046 \(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT\)"):
        device.run(asked)
    assert len(device.lost) == 1
    device.abandon()


def test_a_call_that_hangs_in_c_is_given_up(open_device: Open) -> None:
    device = open_device(device_timeout=0.05)
    asked = l1(device.device)
    device.simulator.fail("aclnnL1LossBackwardGetWorkspaceSize", status=HEARTBEAT, what="hang")
    with pytest.raises(BrokenDeviceError, match=r"device_timeout"):
        device.run(asked)
    assert device.lost[0].details["setting"] == "device_timeout"
    device.abandon()


def test_the_status_of_the_runtime_behind_one_of_an_operator_decides(device: Opened) -> None:
    asked = l1(device.device)
    device.simulator.fail("aclrtGetMemInfo", status=HEARTBEAT, what="sticky")
    device.device.facts()  # meets it, and leaves it out
    with pytest.raises(BrokenDeviceError) as caught:
        device.plan(asked)
    assert str(caught.value).startswith(
        "aclnnL1LossBackwardGetWorkspaceSize: expected status 0, found 361001 "
        "(ACLNN_ERR_RUNTIME_ERROR), the runtime's 507010 (ACL_ERROR_RT_LOST_HEARTBEAT) behind it"
    )
    assert (caught.value.aclnn_status, caught.value.details["device_status"]) == (361001, "507010")
    device.abandon()


def statuses(fate: Fate) -> list[int]:
    return [code for code, status in STATUSES.items() if status.fate is fate]
