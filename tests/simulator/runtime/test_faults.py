"""Functions that are told to fail."""

from __future__ import annotations

from ctypes import byref, c_void_p
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann


def test_a_function_fails_once_with_the_given_status(cann: Cann, simulator: Simulator) -> None:
    simulator.fail("aclrtMalloc", status=207001)
    made = c_void_p()
    answers = [cann.aclrtMalloc(byref(made), 4, 0) for _ in range(2)]
    assert answers == [207001, 0]


def test_a_function_fails_at_its_nth_call(cann: Cann, simulator: Simulator) -> None:
    simulator.fail("aclrtMalloc", 3, status=207001)
    answers = [cann.aclrtMalloc(byref(c_void_p()), 4, 0) for _ in range(4)]
    assert answers == [0, 0, 207001, 0]


def test_a_function_that_fails_does_nothing(cann: Cann, simulator: Simulator) -> None:
    simulator.fail("aclrtMalloc", status=207001)
    made = c_void_p()
    cann.aclrtMalloc(byref(made), 4, 0)
    assert (made.value, simulator.counters()["device_allocations"]) == (None, 0)


def test_a_failure_has_a_text_and_is_the_last_error(cann: Cann, simulator: Simulator) -> None:
    simulator.fail("aclrtMalloc", status=507899)
    cann.aclrtMalloc(byref(c_void_p()), 4, 0)
    assert (cann.aclrtPeekAtLastError(0), cann.text()) == (
        507899,
        "EZ9999: [aclrtMalloc] the simulator was told to fail here (return)\n",
    )


def test_what_destroys_does_so_also_when_it_fails(cann: Cann, simulator: Simulator) -> None:
    address = cann.device(4)
    simulator.fail("aclrtFree", status=507899)
    assert cann.aclrtFree(address) == 507899
    assert "aclrtMalloc" not in simulator.live_objects()


def test_a_function_that_answers_a_pointer_answers_null(cann: Cann, simulator: Simulator) -> None:
    simulator.fail("aclCreateTensor", status=200000)
    assert cann.tensor(None, [1]) is None


def test_phase_one_can_be_told_to_fail(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    simulator.fail("aclnnReluGetWorkspaceSize", status=561002)
    assert cann.plan("aclnnRelu", source, target).status == 561002
    assert "aclOpExecutor" not in simulator.live_objects()


def test_a_launch_can_fail_at_the_synchronise(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    simulator.fail("aclnnRelu", status=507035, what="at_sync")
    assert [cann.aclnnRelu(None, 0, executor, None), cann.aclrtSynchronizeStream(None)] == [
        0,
        507035,
    ]


def test_a_star_is_any_function(cann: Cann, simulator: Simulator) -> None:
    simulator.fail("*", 2, status=507899)
    answers = [cann.aclrtSynchronizeStream(None), cann.aclrtSetDevice(0)]
    assert answers == [0, 507899]


def test_a_sticky_failure_is_answered_by_every_later_call_of_the_device(
    cann: Cann, simulator: Simulator
) -> None:
    simulator.fail("aclrtMalloc", status=507010, what="sticky")
    answers = [
        cann.aclrtMalloc(byref(c_void_p()), 4, 0),
        cann.aclrtMalloc(byref(c_void_p()), 4, 0),
        cann.aclrtSynchronizeStream(None),
    ]
    assert answers == [507010] * 3


def test_a_sticky_failure_leaves_other_devices_alone(cann: Cann, simulator: Simulator) -> None:
    simulator.fail("aclrtMalloc", status=507010, what="sticky")
    cann.aclrtMalloc(byref(c_void_p()), 4, 0)
    cann.ok(cann.aclrtSetDevice(1))
    assert cann.aclrtSynchronizeStream(None) == 0


def test_a_call_that_hangs_returns_when_the_faults_are_cleared(
    cann: Cann, simulator: Simulator
) -> None:
    context, started, answers = cann.made("aclrtGetCurrentContext"), Event(), []

    def run() -> None:
        cann.ok(cann.aclrtSetCurrentContext(context))
        started.set()
        answers.append(cann.aclrtSynchronizeStream(None))

    simulator.fail("aclrtSynchronizeStream", status=507899, what="hang")
    thread = Thread(target=run)
    thread.start()
    started.wait(10)
    while simulator.call_count("aclrtSynchronizeStream") == 0:
        pass
    assert answers == []
    simulator.clear_faults()
    thread.join(10)
    assert answers == [507899]


def test_a_tolerated_failure_is_left_behind_by_a_function_that_succeeds(
    cann: Cann, simulator: Simulator
) -> None:
    *_, source, target = cann.relu()
    simulator.fail("aclnnReluGetWorkspaceSize", status=507010, what="tolerated")
    plan = cann.planned("aclnnRelu", source, target)
    cann.ok(cann.aclnnRelu(None, 0, plan.executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert [cann.aclrtGetLastError(0), cann.aclrtGetLastError(0)] == [507010, 0]


def test_a_function_may_fail_by_what_it_tolerated(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    simulator.fail("aclnnReluGetWorkspaceSize", status=507010, what="tolerated")
    simulator.fail("aclnnReluGetWorkspaceSize", status=361001)
    assert cann.plan("aclnnRelu", source, target).status == 361001
    assert cann.aclrtGetLastError(0) == 507010


def test_calls_are_counted(cann: Cann, simulator: Simulator) -> None:
    cann.aclrtSynchronizeStream(None)
    cann.aclrtSynchronizeStream(None)
    assert simulator.call_count("aclrtSynchronizeStream") == 2


def test_an_unknown_fault_is_refused(cann: Cann, simulator: Simulator) -> None:
    with pytest.raises(ValueError, match="no such fault: 'explode' at call 1 of 'aclrtFree'"):
        simulator.fail("aclrtFree", status=1, what="explode")
