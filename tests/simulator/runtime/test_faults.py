"""Functions that are told to fail."""

from ctypes import byref, c_void_p
from threading import Event, Thread
from time import sleep

import pytest

from .raw import Cann


def malloc(cann: Cann) -> int:
    status: int = cann.aclrtMalloc(byref(c_void_p()), 4, 0)
    return status


@pytest.mark.parametrize(("nth", "answers"), [(1, [207001, 0]), (3, [0, 0, 207001, 0])])
def test_a_function_fails_once_at_its_nth_call(cann: Cann, nth: int, answers: list[int]) -> None:
    cann.fail("aclrtMalloc", nth, status=207001)
    assert [malloc(cann) for _ in answers] == answers
    assert cann.call_count("aclrtMalloc") == len(answers)


def test_what_is_told_to_fail_does_nothing_says_so_but_destroys_what_it_destroys(
    cann: Cann,
) -> None:
    cann.fail("aclrtMalloc", status=507899)
    made = c_void_p()
    cann.aclrtMalloc(byref(made), 4, 0)
    assert (made.value, cann.counters()["device_allocations"]) == (None, 0)
    said = "EZ9999: [aclrtMalloc] the simulator was told to fail here (return)\n"
    assert (cann.aclrtPeekAtLastError(0), cann.text()) == (507899, said)
    cann.fail("aclCreateTensor", status=200000)
    assert cann.tensor(None, [1]) is None
    address = cann.device(4)
    cann.fail("aclrtFree", status=507899)
    assert cann.aclrtFree(address) == 507899
    assert "aclrtMalloc" not in cann.live_objects()


def test_a_phase_can_fail_and_a_launch_at_the_synchronise(cann: Cann) -> None:
    *_, source, target = cann.relu()
    cann.fail("aclnnReluGetWorkspaceSize", status=561002)
    assert cann.plan("aclnnRelu", source, target).status == 561002
    assert "aclOpExecutor" not in cann.live_objects()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.fail("aclnnRelu", status=507035, what="at_sync")
    assert cann.aclnnRelu(None, 0, executor, None) == 0
    assert cann.aclrtSynchronizeStream(None) == 507035


def test_a_sticky_failure_is_answered_by_every_later_call_of_the_device_alone(cann: Cann) -> None:
    cann.fail("aclrtMalloc", status=507010, what="sticky")
    answers = [malloc(cann), malloc(cann), cann.aclrtSynchronizeStream(None)]
    assert answers == [507010] * 3
    cann.ok(cann.aclrtSetDevice(1))
    assert cann.aclrtSynchronizeStream(None) == 0


def test_a_call_that_hangs_returns_when_the_faults_are_cleared(cann: Cann) -> None:
    context, started, answers = cann.made("aclrtGetCurrentContext"), Event(), list[int]()

    def run() -> None:
        cann.ok(cann.aclrtSetCurrentContext(context))
        started.set()
        answers.append(cann.aclrtSynchronizeStream(None))

    cann.fail("aclrtSynchronizeStream", status=507899, what="hang")
    thread = Thread(target=run)
    thread.start()
    assert started.wait(20)
    while cann.call_count("aclrtSynchronizeStream") == 0:
        sleep(0.001)
    assert answers == []
    cann.clear_faults()
    thread.join(20)
    assert answers == [507899]


def test_a_tolerated_failure_is_left_behind_by_a_function_that_succeeds_or_fails(
    cann: Cann,
) -> None:
    cann.fail("aclnnReluGetWorkspaceSize", status=507010, what="tolerated")
    cann.relu_once()
    assert [cann.aclrtGetLastError(0), cann.aclrtGetLastError(0)] == [507010, 0]
    *_, source, target = cann.relu()
    cann.fail("aclnnReluGetWorkspaceSize", status=507010, what="tolerated")
    cann.fail("aclnnReluGetWorkspaceSize", status=361001)
    assert cann.plan("aclnnRelu", source, target).status == 361001
    assert cann.aclrtGetLastError(0) == 507010


def test_a_star_is_any_function_and_an_unknown_fault_is_refused(cann: Cann) -> None:
    with pytest.raises(ValueError, match="no such fault: 'explode' at call 1 of 'aclrtFree'"):
        cann.fail("aclrtFree", status=1, what="explode")
    cann.fail("*", 2, status=507899)
    assert [cann.aclrtSynchronizeStream(None), cann.aclrtSetDevice(0)] == [0, 507899]
