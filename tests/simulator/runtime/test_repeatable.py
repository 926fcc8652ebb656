"""Executors that run more than once."""

from __future__ import annotations

from ctypes import c_void_p
from typing import TYPE_CHECKING

from .helpers import in_thread

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann


def test_a_repeatable_executor_runs_until_it_is_destroyed(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    cann.ok(cann.aclDestroyAclOpExecutor(executor))
    assert simulator.violations() == []


def test_a_repeatable_executor_survives_a_run_that_failed(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    simulator.fail("aclnnRelu", status=361001)
    cann.aclnnRelu(None, 0, executor, None)
    assert simulator.live_objects()["aclOpExecutor"] == 1


def test_a_repeatable_executor_is_used_up_by_a_run_without_workspace(
    cann: Cann, simulator: Simulator
) -> None:
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(3)]
    plan = cann.planned("aclnnMul", *tensors)
    cann.ok(cann.aclSetAclOpExecutorRepeatable(plan.executor))
    assert cann.aclnnMul(None, plan.workspace, plan.executor, None) == 161001
    assert "aclOpExecutor" not in simulator.live_objects()


def test_a_repeatable_executor_launches_with_the_address_that_it_was_given(
    cann: Cann, simulator: Simulator
) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    cann.ok(cann.aclSetTensorAddr(executor, 0, source, 512))
    cann.aclnnRelu(None, 0, executor, None)
    assert simulator.violations() == ["aclnnRelu: self (0x200) is in no memory of the device"]


def test_a_wrong_index_of_a_tensor_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    cann.ok(cann.aclSetTensorAddr(executor, 1, source, 512))
    assert simulator.violations() == ["aclSetTensorAddr: tensor 1 of the executor is another one"]


def test_a_descriptor_that_phase_one_did_not_see_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    cann.ok(cann.aclSetTensorAddr(executor, 0, cann.tensor(None, [8]), 512))
    assert simulator.violations()[1:] == [
        "aclSetTensorAddr: the descriptor is not one of phase one"
    ]


def test_a_list_that_phase_one_did_not_see_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    tensors = cann.aclCreateTensorList((c_void_p * 1)(cann.tensor(None, [8])), 1)
    cann.ok(cann.aclSetDynamicTensorAddr(executor, 0, 0, tensors, 512))
    assert simulator.violations() == ["aclSetDynamicTensorAddr: the list is not one of phase one"]
    assert cann.aclSetDynamicTensorAddr(executor, 0, 1, tensors, 512) == 161002


def test_an_address_off_32_bytes_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    cann.ok(cann.aclSetTensorAddr(executor, 0, source, cann.device(128) + 4))
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    (line,) = simulator.violations()
    assert line.endswith("is not on a multiple of 32")


def test_a_wrong_index_of_a_single_kernel_answers_161002(cann: Cann) -> None:
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(2)]
    executor = cann.planned("aclnnLogit", tensors[0], 0.1, tensors[1]).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    assert cann.aclSetTensorAddr(executor, 1, tensors[0], 512) == 161002


def test_an_address_is_set_for_a_descriptor(cann: Cann) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.ok(cann.aclSetAclOpExecutorRepeatable(executor))
    assert cann.aclSetTensorAddr(executor, 0, None, 512) == 561103


def test_an_executor_that_is_not_repeatable_keeps_its_addresses(cann: Cann) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    assert cann.aclSetTensorAddr(executor, 0, source, 512) == 561000


def test_an_executor_is_made_repeatable_before_the_next_phase_one(
    cann: Cann, simulator: Simulator
) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    cann.planned("aclnnRelu", source, target)
    assert cann.aclSetAclOpExecutorRepeatable(executor) == 561000
    assert simulator.violations() == [
        "aclSetAclOpExecutorRepeatable: an executor is made repeatable before the next phase one"
    ]


def test_an_executor_is_made_repeatable_by_its_own_thread(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    executor = cann.planned("aclnnRelu", source, target).executor
    assert in_thread(lambda: cann.aclSetAclOpExecutorRepeatable(executor)) == 561000
    (line,) = simulator.violations()
    assert line.endswith("an executor is made repeatable by the thread of its phase one")


def test_no_executor_answers_561103(cann: Cann) -> None:
    assert [cann.aclSetAclOpExecutorRepeatable(None), cann.aclDestroyAclOpExecutor(None)] == [
        561103,
        561103,
    ]
