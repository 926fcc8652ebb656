"""Executors that never ran: what stays of them in the cache of their thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .helpers import native_end, planned_relu, relu_once
from .raw import FLOATS

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann

SIZE = 8
BEFORE = b"\x01\x02\x03\x04" * SIZE


@pytest.fixture
def unrun(
    request: pytest.FixtureRequest, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> str:
    """What becomes of them."""
    monkeypatch.setenv("NPUCALL_SIM_UNRUN", request.param)
    monkeypatch.setenv("NPUCALL_SIM_KERNELS", "python")
    simulator.reset()
    found: str = request.param
    return found


def plan_alone(cann: Cann) -> int:
    """A first phase whose executor is destroyed; the status of that."""
    executor, _ = planned_relu(cann)
    status: int = cann.aclDestroyAclOpExecutor(executor)
    return status


def written(cann: Cann) -> bool:
    """Whether a run of the same call writes its output."""
    source, target = cann.upload(bytes(SIZE * FLOATS)), cann.upload(BEFORE)
    tensors = cann.tensor(source, [SIZE]), cann.tensor(target, [SIZE])
    executor = cann.planned("aclnnRelu", *tensors).executor
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    return cann.download(target, SIZE * FLOATS) != BEFORE


def dead_plans(simulator: Simulator) -> int:
    found: int = simulator.counters()["dead_plans"]
    return found


@pytest.mark.parametrize(
    ("unrun", "runs"), [("unguarded", False), ("guarded", True), ("refused", True)],
    indirect=["unrun"],
)  # fmt: skip
def test_a_run_after_a_plan_launches_nothing_where_there_is_no_guard(
    unrun: str, cann: Cann, simulator: Simulator, runs: bool
) -> None:
    assert plan_alone(cann) == (561000 if unrun == "refused" else 0)
    assert written(cann) == runs
    assert simulator.counters()["cache_hits"] == (unrun == "unguarded")


@pytest.mark.parametrize("unrun", ["unguarded"], indirect=True)
def test_what_ran_before_it_was_planned_runs_again(unrun: str, cann: Cann) -> None:
    assert written(cann)
    assert plan_alone(cann) == 0
    assert written(cann)


@pytest.mark.parametrize("unrun", ["refused"], indirect=True)
def test_an_executor_that_is_refused_stays_and_its_call_is_not_cached(
    unrun: str, cann: Cann, simulator: Simulator
) -> None:
    assert plan_alone(cann) == 561000
    relu_once(cann)
    relu_once(cann)
    assert simulator.live_objects()["aclOpExecutor"] == 1
    assert simulator.counters()["cache_hits"] == 0


@pytest.mark.parametrize(
    ("unrun", "left"), [("unguarded", 1), ("guarded", 3), ("refused", 1)], indirect=["unrun"]
)
def test_plans_leave_dead_entries_behind(
    unrun: str, cann: Cann, simulator: Simulator, left: int
) -> None:
    for _ in range(3):
        plan_alone(cann)
    assert dead_plans(simulator) == left


@pytest.mark.parametrize("unrun", ["guarded"], indirect=True)
def test_dead_entries_are_pushed_out_by_others(
    unrun: str, cann: Cann, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACLNN_CACHE_LIMIT", "2")
    simulator.reset()
    cann.ok(cann.aclInit(None))
    cann.ok(cann.aclrtSetDevice(0))
    plan_alone(cann)
    plan_alone(cann)
    relu_once(cann)
    assert dead_plans(simulator) == 1


@pytest.mark.parametrize("unrun", ["guarded"], indirect=True)
def test_dead_entries_go_with_their_thread(unrun: str, cann: Cann, simulator: Simulator) -> None:
    def run() -> None:
        cann.ok(cann.aclrtSetDevice(0))
        plan_alone(cann)
        assert dead_plans(simulator) == 1

    native_end(run)
    assert dead_plans(simulator) == 0


def test_without_a_cache_nothing_stays(
    cann: Cann, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISABLE_L2_CACHE", "1")
    assert plan_alone(cann) == 0
    assert dead_plans(simulator) == 0
