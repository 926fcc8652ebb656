"""Plan asks first phases that nothing follows: no call that runs is harmed by them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from npucall_server.devices.base import BrokenDeviceError
from npucall_server.devices.cann import planner as planner_module
from npucall_server.devices.cann.lane import Lane, LaneLimits
from npucall_server.devices.cann.planner import Planner

from .situations import SITUATIONS, in_place, l1, rsub

if TYPE_CHECKING:
    from collections.abc import Callable

    from .opened import Opened
    from .situations import Ask

    Open = Callable[..., Opened]

PHASE_ONE = "aclnnL1LossBackwardGetWorkspaceSize"
WORKSPACE = 512 + 16384
HEARTBEAT = 507010
LIMITS = LaneLimits(
    device_timeout=10, staging_limit=1 << 20, kept_memory=1 << 30, kept_calls=2, busy_wait=False
)


@pytest.fixture(params=["unguarded", "guarded", "refused"])
def device(
    request: pytest.FixtureRequest, open_device: Open, unrun: Callable[[str], None]
) -> Opened:
    """With each thing that CANN may do with an executor that never ran."""
    unrun(request.param)
    return open_device()


def planned(device: Opened) -> int:
    """First phases so far."""
    return device.simulator.call_count(PHASE_ONE)


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_call_that_was_planned_runs(open_device: Open, name: str) -> None:
    device = open_device()
    asked = SITUATIONS[name].then(device.device)
    for _ in range(2):
        device.plan(asked)
        assert device.serves(asked)


def test_whatever_becomes_of_its_executor_a_plan_is_answered(device: Opened) -> None:
    asked = l1(device.device)
    assert device.plan(asked) == WORKSPACE
    assert device.serves(asked)
    leave_executors(device)


def test_calls_are_planned_in_a_thread_that_runs_none(device: Opened) -> None:
    assert [device.serves(l1(device.device, 100)) for _ in range(2)] == [True] * 2  # has its memory
    before = device.simulator.counters()["cache_hits"]
    for count in range(1, 20):
        asked = l1(device.device, count)
        device.plan(asked)
        assert device.serves(asked)
        assert device.serves(asked)
    assert device.simulator.counters()["cache_hits"] == before + 19
    leave_executors(device)


@pytest.mark.parametrize("ask", [l1, rsub, in_place])
def test_a_call_is_planned_once(device: Opened, ask: Ask) -> None:
    asked = ask(device.device)
    first = device.plan(asked)
    assert device.functions(lambda: device.plan(asked)) == []
    assert device.plan(asked) == first
    leave_executors(device)


def test_nothing_is_remembered_where_no_calls_are_kept(open_device: Open) -> None:
    device = open_device(kept_calls=0)
    asked = l1(device.device)
    assert [device.plan(asked) for _ in range(3)] == [WORKSPACE] * 3
    assert planned(device) == 3


def test_what_plans_leave_behind_is_bounded(
    device: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "PLANS_A_THREAD", 5)
    for count in range(1, 41):
        device.plan(l1(device.device, count))
    assert planned(device) == 40
    # The threads before may be on their way out.
    device.device._ending.wait(20)
    assert device.simulator.counters()["dead_plans"] <= 5
    assert device.serves(l1(device.device))
    leave_executors(device)


def test_plans_of_several_callers_have_a_thread_each(open_device: Open) -> None:
    device = open_device(lanes=3)
    asked = [l1(device.device, count) for count in range(1, 31)]
    with ThreadPoolExecutor(3) as callers:
        assert len(set(callers.map(device.plan, asked))) == 1
    assert planned(device) == 30


def test_a_plan_that_finds_no_memory_is_made_once_more_when_lanes_gave_theirs(
    open_device: Open,
) -> None:
    device = open_device()
    assert device.serves(l1(device.device))
    device.simulator.fail(PHASE_ONE, status=207001)
    assert "aclrtFree" in device.functions(lambda: device.plan(l1(device.device, 7)))


def test_a_plan_that_hangs_in_c_is_given_up(open_device: Open) -> None:
    device = open_device(device_timeout=0.05)
    asked = l1(device.device)
    device.simulator.fail(PHASE_ONE, status=HEARTBEAT, what="hang")
    with pytest.raises(BrokenDeviceError, match="device_timeout"):
        device.plan(asked)
    assert [error.details["setting"] for error in device.lost] == ["device_timeout"]
    device.abandon()


@pytest.mark.parametrize(("kind", "runs"), [("unguarded", False), ("guarded", True)])
def test_a_planner_beside_a_lane_on_one_thread_shows_what_cann_does(
    open_device: Open, unrun: Callable[[str], None], kind: str, runs: bool
) -> None:
    unrun(kind)
    opened = open_device()
    asked, parts = l1(opened.device), (opened.device._context, opened.device._operators)
    lane, planner = Lane(*parts, LIMITS, opened.notes.append), Planner(*parts)
    planner.plan(asked.call)
    ran = lane.run(asked.call, asked.storages, lambda: None)
    assert ([bytes(output) for output in ran.outputs] == asked.answers) == runs
    lane.close()


def leave_executors(device: Opened) -> None:
    """Closes the device; executors that CANN refused to destroy are all that may be left."""
    device.close()
    assert {*device.simulator.live_objects()} <= {"aclOpExecutor"}
    assert device.simulator.violations() == []
    device.simulator.reset()
