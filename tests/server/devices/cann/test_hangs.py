"""What never returns or never ends: the device is lost, once, and whoever can hears of it."""

import itertools
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.more import only
from tests.simulator.control import Simulator

from npucall.errors import DeviceError
from npucall_server.devices import lane_thread, watchdog
from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann import device as device_module

from .calls import WAYS, Case, l1, longer
from .faults import HEARTBEAT, KERNEL_FAILED, failure
from .opened import Open, Opened
from .test_lanes import STREAM, without_workspace

PATIENCE = 20.0
FAILED = 507899
PLAN = "aclnnL1LossBackwardGetWorkspaceSize"
FACTS = ("aclrtGetMemInfo", "aclrtQueryDeviceStatus", "aclsysGetCANNVersion")
TEXT = "aclGetRecentErrMsg"
Hang = Callable[[str], None]
SOON = {"device_timeout": 0.05}
"""For work that never ends: how long a stream or an event is waited for."""


@pytest.fixture
def hang(simulator: Simulator, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets a C function hang. From then on each look at the watchdogs' clock is an hour later."""
    hours, called = itertools.count(), {}

    def now() -> float:
        hangs = any(simulator.call_count(name) > count for name, count in called.items())
        return 3600.0 * next(hours) if hangs else 0.0

    def choose(function: str) -> None:
        called.setdefault(function, simulator.call_count(function))
        simulator.fail(function, status=HEARTBEAT, what="hang")

    class Looks(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return super().wait(min(timeout or 0.01, 0.01))

    for module in watchdog, lane_thread:
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=now))
    often = SimpleNamespace(Event=Looks, Thread=threading.Thread)
    monkeypatch.setattr(watchdog, "threading", often)
    return choose


def write(device: Opened) -> None:
    device.device.allocate(100).write(0, bytes(100))


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


def facts(device: Opened) -> None:
    device.device.facts()


def run(device: Opened) -> None:
    device.run(l1(device))


@pytest.mark.parametrize(
    ("function", "fails", "work"),
    [*((function, "", facts) for function in FACTS),
     (TEXT, "aclrtQueryDeviceStatus", facts), (TEXT, PLAN, run), ("aclrtMemcpy", "", write)],
)  # fmt: skip
def test_what_others_than_lanes_ask_for_and_never_get_ends_the_device(
    open_device: Open, hang: Hang, function: str, fails: str, work: Callable[[Opened], None]
) -> None:
    device = open_device()
    hang(function)
    if fails:
        device.simulator.fail(fails, status=FAILED)
    assert loses(device, lambda: work(device))
    assert [error.details["setting"] for error in device.lost] == ["device_timeout"]
    device.abandon()


@pytest.mark.parametrize(
    ("function", "way", "work"),
    [(PLAN, "whole", Opened.run), (PLAN, "whole", Opened.plan),
     ("aclrtMemcpy", "waiting", Opened.run)],
    ids=["run", "plan", "copy"],
)  # fmt: skip
def test_a_call_that_hangs_in_c_is_given_up(
    open_device: Open, hang: Hang, function: str, way: str, work: Callable[[Opened, Case], object]
) -> None:
    device = open_device(**WAYS[way])
    case = l1(device)
    hang(function)
    with pytest.raises(BrokenDeviceError, match="device_timeout"):
        work(device, case)
    assert [error.details["setting"] for error in device.lost] == ["device_timeout"]
    device.abandon()


@pytest.mark.parametrize(
    ("function", "way", "ask", "said"),
    [("aclnnL1LossBackward", "whole", l1, r"507046 \(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT\)"),
     ("aclrtMemcpyAsync", "in pieces", longer, r"507047 \(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT\)")],
)  # fmt: skip
def test_work_that_does_not_end_in_time_breaks_the_device(
    open_device: Open, hang: Hang, function: str, way: str, ask: Callable[[Any], Case], said: str
) -> None:
    """The clock of the watchdogs stands, so that they are not asked."""
    device = open_device(**WAYS[way], **SOON)
    case = ask(device)
    device.simulator.fail(function, status=KERNEL_FAILED, what="stall")
    with pytest.raises(BrokenDeviceError, match=said):
        device.run(case)
    lost, violations = device.lost, device.simulator.violations()
    device.abandon()
    assert (len(lost), violations) == (1, [])


def test_a_lane_that_hangs_while_it_is_opened_anew_ends_the_device(
    open_device: Open, hang: Hang
) -> None:
    device = open_device()
    case = l1(device)
    with pytest.raises(DeviceError):
        device.run(case, without_workspace(device, status=207012))
    hang(STREAM)
    with pytest.raises(BrokenDeviceError, match="device_timeout"):
        device.run(case)
    assert len(device.lost) == 1
    device.abandon()


@pytest.mark.parametrize("function", only("aclrtDestroyStream", "aclrtDestroyEvent"))
def test_a_lane_that_hangs_while_it_is_closed_does_not_keep_the_process(
    open_device: Open, hang: Hang, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setattr(device_module, "_SOON_SECONDS", 0.0)
    monkeypatch.setattr(device_module, "_LATEST_SECONDS", 0.0)
    device = open_device(lanes=2)
    for _ in range(2):
        hang(function)
    with pytest.raises(BrokenDeviceError, match="device_timeout"):
        device.close()
    assert len(device.lost) == 1
    assert device.simulator.call_count("aclrtResetDevice") == 0
    device.abandon()


def test_facts_are_told_as_often_as_they_are_asked_for(device: Opened) -> None:
    assert [device.device.facts().healthy for _ in range(3)] == [True] * 3
    assert device.lost == []
