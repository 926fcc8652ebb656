"""CANN keeps things for threads, and gives them back when the system's thread ends: later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.more import only

from npucall.errors import DeviceError
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann import device as device_module

from .situations import l1

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.control import Simulator

    from .opened import Opened

    Open = Callable[..., Opened]

HEARTBEAT = 507010


@pytest.fixture
def ends_after(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Says how many milliseconds a thread takes to end, before a device is opened."""

    def choose(milliseconds: int) -> None:
        monkeypatch.setenv("NPUCALL_SIM_THREAD_END_MS", str(milliseconds))
        simulator.reset()

    return choose


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads have little time to end."""
    monkeypatch.setattr(device_module, "_SOON_SECONDS", 0.05)
    monkeypatch.setattr(device_module, "_LATEST_SECONDS", 0.1)


def test_the_device_is_reset_when_all_threads_have_ended(
    open_device: Open, ends_after: Callable[[int], None]
) -> None:
    ends_after(300)
    device = open_device(lanes=2)
    asked = l1(device.device)
    assert device.runs_around(asked, lambda: device.serves(l1(device.device)))
    device.plan(asked)
    device.close()
    assert device.simulator.violations() == []
    assert device.notes == []


@pytest.mark.usefixtures("impatient")
def test_threads_that_take_longer_are_waited_for_with_a_note(
    open_device: Open, ends_after: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_module, "_LATEST_SECONDS", 20)
    ends_after(300)
    device = open_device()
    assert device.serves(l1(device.device))
    device.close()
    assert device.notes == ["threads of lanes that still run: 1; the server waits 20 s for them"]


@pytest.mark.usefixtures("impatient")
def test_a_device_is_not_reset_under_threads_that_do_not_end(
    open_device: Open, ends_after: Callable[[int], None]
) -> None:
    ends_after(2000)
    device = open_device()
    assert device.serves(l1(device.device))
    with pytest.raises(DeviceError, match=r"did not end within 0\.1 s: 1"):
        device.close()
    assert device.simulator.call_count("aclrtResetDevice") == 0
    device.simulator.reset()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("function", only("aclrtDestroyStream", "aclrtDestroyEvent"))
def test_a_lane_that_hangs_while_it_is_closed_does_not_keep_the_process(
    open_device: Open, function: str
) -> None:
    device = open_device(device_timeout=0.05, lanes=2)
    for _ in range(2):
        device.simulator.fail(function, status=HEARTBEAT, what="hang")
    with pytest.raises(BrokenDeviceError, match="device_timeout"):
        device.close()
    assert len(device.lost) == 1
    assert device.simulator.call_count("aclrtResetDevice") == 0
    device.abandon()
