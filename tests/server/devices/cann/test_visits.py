"""What others than lanes ask of the device never hangs unseen: facts, and the text of an error."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from .faults import failure
from .situations import l1

if TYPE_CHECKING:
    from collections.abc import Callable

    from .opened import Opened

    Open = Callable[..., Opened]

FAILED = 507899
PATIENCE = 20.0


def loses(device: Opened, work: Callable[[], object]) -> bool:
    """Whether the device is lost while a thread does some work that never ends."""
    is_lost = threading.Event()
    device.device.watch(lambda error: (device.lost.append(error), is_lost.set()))
    thread = threading.Thread(target=partial(failure, work), daemon=True)
    thread.start()
    heard = is_lost.wait(PATIENCE)
    device.simulator.clear_faults()
    thread.join(PATIENCE)
    return heard


@pytest.mark.parametrize(
    "function", ["aclrtGetMemInfo", "aclrtQueryDeviceStatus", "aclsysGetCANNVersion"]
)
def test_facts_that_are_never_told_end_the_device(open_device: Open, function: str) -> None:
    device = open_device(device_timeout=0.05)
    device.simulator.fail(function, status=FAILED, what="hang")
    assert loses(device, device.device.facts)
    assert [error.details["setting"] for error in device.lost] == ["device_timeout"]
    device.abandon()


def test_a_text_that_never_comes_ends_the_device_while_facts_are_asked_for(
    open_device: Open,
) -> None:
    device = open_device(device_timeout=0.05)
    device.simulator.fail("aclrtQueryDeviceStatus", status=FAILED)
    device.simulator.fail("aclGetRecentErrMsg", status=FAILED, what="hang")
    assert loses(device, device.device.facts)
    device.abandon()


def test_a_text_that_never_comes_ends_the_device_in_a_call(open_device: Open) -> None:
    device = open_device(device_timeout=0.05)
    asked = l1(device.device)
    device.simulator.fail("aclnnL1LossBackwardGetWorkspaceSize", status=FAILED)
    device.simulator.fail("aclGetRecentErrMsg", status=FAILED, what="hang")
    assert loses(device, lambda: device.run(asked))
    device.abandon()


def test_facts_are_told_as_often_as_they_are_asked_for(open_device: Open) -> None:
    device = open_device(device_timeout=0.05)
    for _ in range(3):
        assert device.device.facts().healthy
    assert device.lost == []
