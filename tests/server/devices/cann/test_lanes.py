"""What lanes and planners leave behind: first phases that nothing follows, threads that end."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.server.devices.programs import differences

from npucall.errors import DeviceError, OutOfMemoryError
from npucall_server.devices.cann import device as device_module
from npucall_server.devices.cann import planner as planner_module
from npucall_server.devices.native_threads import EndingThreads

from .calls import SITUATIONS, Ask, in_place, l1, rsub
from .faults import NO_MEMORY
from .opened import FakeTurn, Open, Opened
from .test_programs import chain

PHASE_ONE = "aclnnL1LossBackwardGetWorkspaceSize"
STREAM = "aclrtCreateStreamWithConfig"
WORKSPACE = 512 + 16384
OFTEN = 9
LARGE, FOR_TENSORS = 600_000, 14 << 20
"""Elements of 4 bytes, and device memory in which they fit without their workspace."""
Unrun = Callable[[str], None]


@pytest.fixture(params=["unguarded", "guarded", "refused"])
def device(request: pytest.FixtureRequest, open_device: Open, unrun: Unrun) -> Opened:
    """With each thing that CANN may do with an executor that never ran."""
    unrun(request.param)
    return open_device()


def test_a_call_that_was_planned_runs(open_device: Open) -> None:
    device, wrong = open_device(), []
    for name, situation in SITUATIONS.items():
        case = situation.then(device)
        for _ in range(2):
            device.plan(case)
            wrong += [] if device.serves(case) else [name]
    assert wrong == []


def test_calls_are_planned_in_a_thread_that_runs_none(device: Opened) -> None:
    assert [device.serves(l1(device, 100)) for _ in range(2)] == [True] * 2  # has its memory
    before = device.simulator.counters()["cache_hits"]
    for count in range(1, 20):
        case = l1(device, count)
        device.plan(case)
        assert [device.serves(case) for _ in range(2)] == [True] * 2
    assert device.simulator.counters()["cache_hits"] == before + 19
    device.end()


@pytest.mark.parametrize("ask", [l1, rsub, in_place])
def test_a_call_is_planned_once(device: Opened, ask: Ask) -> None:
    case = ask(device)
    first = device.plan(case)
    assert device.functions(lambda: device.plan(case)) == {}
    assert device.plan(case) == first
    device.end()


def test_nothing_is_remembered_where_no_calls_are_kept(open_device: Open) -> None:
    device = open_device(kept_calls=0)
    case = l1(device)
    assert [device.plan(case) for _ in range(3)] == [WORKSPACE] * 3
    assert device.simulator.call_count(PHASE_ONE) == 3


def test_what_plans_leave_behind_is_bounded(
    device: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "PLANS_A_THREAD", 5)
    for count in range(1, 41):
        device.plan(l1(device, count))
    assert device.simulator.call_count(PHASE_ONE) == 40
    device.device._ending.wait(20)  # the threads before may be on their way out
    assert device.simulator.counters()["dead_plans"] <= 5
    assert device.serves(l1(device))
    device.end()


def test_plans_of_several_callers_have_a_thread_each(open_device: Open) -> None:
    device = open_device(lanes=3)
    cases = [l1(device, count) for count in range(1, 31)]
    with ThreadPoolExecutor(3) as callers:
        assert len(set(callers.map(device.plan, cases))) == 1
    assert device.simulator.call_count(PHASE_ONE) == 30


def test_a_plan_that_finds_no_memory_is_made_once_more_when_lanes_gave_theirs(
    open_device: Open,
) -> None:
    device = open_device()
    assert device.serves(l1(device))
    device.simulator.fail(PHASE_ONE, status=NO_MEMORY)
    assert "aclrtFree" in device.functions(lambda: device.plan(l1(device, 7)))


# --- Lanes that had to leave a first phase without its second one ---------------------------------


def without_workspace(device: Opened, times: int = 1, status: int = NO_MEMORY) -> Any:
    """A check after which memory cannot be allocated, so many times: that is the workspace."""
    left = [times]

    def check() -> None:
        if left[0]:
            left[0] -= 1
            device.simulator.fail("aclrtMalloc", status=status)

    return check


def lanes_opened(device: Opened) -> int:
    return device.simulator.call_count(STREAM)


def test_the_second_try_is_made_on_another_lane(device: Opened) -> None:
    case = l1(device)
    assert device.answers(case, without_workspace(device)) == case.answers
    assert device.serves(case)
    assert (lanes_opened(device), device.lost) == (2, [])
    device.end()


def test_lack_of_memory_that_lasts_is_told_and_spends_one_lane(device: Opened) -> None:
    case = l1(device, LARGE)
    device.simulator.set_memory(FOR_TENSORS)
    for _ in range(3):
        with pytest.raises(OutOfMemoryError, match="aclrtMalloc"):
            device.run(case)
    assert device.serves(l1(device))
    assert (lanes_opened(device), device.lost) == (2, [])
    device.end()


@pytest.mark.parametrize("times", [1, OFTEN])
def test_a_program_begins_again_on_another_lane(device: Opened, times: int) -> None:
    steps = chain(l1(device), 3)
    turn = FakeTurn(without_workspace(device, times))
    if times == 1:
        assert differences(device.program(steps, turn), steps) == []
    else:
        with pytest.raises(OutOfMemoryError) as caught:
            device.program(steps, turn)
        assert caught.value.details["step"] == "0"
        device.simulator.clear_faults()
    assert differences(device.program(steps), steps) == []
    device.end()


# --- The ends of their threads, which come later --------------------------------------------------


class Ending(EndingThreads):
    """Threads of which so many are left whenever somebody waits."""

    left: tuple[int, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, seconds: float) -> int:
        super().wait(20)
        self.waits.append(seconds)
        return self.left[len(self.waits) - 1]


@pytest.mark.parametrize("left", [(0,), (2, 0), (2, 1)])
def test_a_device_is_reset_when_the_threads_of_its_lanes_have_ended(
    open_device: Open, monkeypatch: pytest.MonkeyPatch, left: tuple[int, ...]
) -> None:
    monkeypatch.setattr(device_module, "EndingThreads", Ending)
    monkeypatch.setattr(Ending, "left", left)
    device = open_device()
    assert device.serves(l1(device))
    if left[-1]:
        with pytest.raises(DeviceError, match=r"did not end within 10 s: 1$"):
            device.close()
    else:
        device.close()
    note = "threads of lanes that still run: 2; the server waits 10 s for them"
    assert device.notes == [note] * (len(left) - 1)
    assert device.device._ending.waits == [1.0, 10.0][: len(left)]
    assert device.simulator.call_count("aclrtResetDevice") == (not left[-1])
    device.simulator.reset()


def test_every_thread_that_called_cann_is_waited_for_before_the_reset(
    open_device: Open, monkeypatch: pytest.MonkeyPatch, unrun: Unrun
) -> None:
    monkeypatch.setenv("NPUCALL_SIM_THREAD_END_MS", "100")
    monkeypatch.setattr(device_module, "_SOON_SECONDS", 20.0)
    unrun("unguarded")
    device = open_device(lanes=2)
    assert device.runs_around(l1(device), lambda: device.serves(l1(device)))
    device.plan(l1(device))
    device.run(l1(device), without_workspace(device))
    device.close()
    assert (device.notes, device.simulator.violations()) == ([], [])
