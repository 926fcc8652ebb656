"""Phase two: executors, workspaces and what a launch may touch."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_double, c_void_p
from typing import TYPE_CHECKING

import pytest

from .raw import DOUBLE, FLOAT16, TO_DEVICE
from .test_process_start_and_end import in_thread

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann, Plan


def planned_mul(cann: Cann) -> tuple[Plan, list[int]]:
    """A plan that needs a workspace, and its descriptors."""
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(3)]
    return cann.planned("aclnnMul", *tensors), tensors


def planned_logit(cann: Cann) -> Plan:
    """A plan of the single-kernel family."""
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(2)]
    return cann.planned("aclnnLogit", tensors[0], 0.1, tensors[1])


def planned_relu(cann: Cann) -> tuple[int, list[int]]:
    """An executor that needs no workspace, and its descriptors."""
    *_, source, target = cann.relu()
    return cann.planned("aclnnRelu", source, target).executor or 0, [source, target]


def test_a_launch_computes(
    cann: Cann, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.set_kernels("python")
    left, right = struct.pack("3f", 1, 2, 3), struct.pack("3f", 10, 20, 30)
    target, stream = cann.device(12), cann.stream()
    alpha = cann.aclCreateScalar(byref(c_double(2)), DOUBLE)
    tensors = [cann.tensor(cann.upload(content), [3]) for content in (left, right)]
    plan = cann.planned("aclnnAdd", *tensors, alpha, cann.tensor(target, [3]))
    cann.ok(cann.aclnnAdd(cann.device(plan.workspace), plan.workspace, plan.executor, stream))
    cann.ok(cann.aclrtSynchronizeStream(stream))
    assert struct.unpack("3f", cann.download(target, 12)) == (21, 42, 63)


def test_a_kernel_that_raises_shows_at_the_synchronise(
    cann: Cann, simulator: Simulator, capfd: pytest.CaptureFixture[str]
) -> None:
    simulator.set_kernels("python")
    # No formula takes an input of float16 and an output of float32.
    tensors = [cann.tensor(cann.device(16), [8], FLOAT16) for _ in range(3)]
    target = cann.tensor(cann.device(64), [16])
    plan = cann.planned("aclnnGeluBackwardV2", tensors[0], tensors[1], b"tanh", target)
    workspace = cann.device(plan.workspace)
    cann.ok(cann.aclnnGeluBackwardV2(workspace, plan.workspace, plan.executor, None))
    assert cann.aclrtSynchronizeStream(None) == 507015
    assert "Traceback" in cann.text()
    assert "Traceback" in capfd.readouterr().err


def test_an_executor_is_gone_after_phase_two(cann: Cann, simulator: Simulator) -> None:
    executor, _ = planned_relu(cann)
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    assert "aclOpExecutor" not in simulator.live_objects()
    cann.aclnnRelu(None, 0, executor, None)
    (line,) = simulator.violations()
    assert "this is a destroyed aclOpExecutor" in line


def test_an_executor_is_gone_after_a_phase_two_that_failed(
    cann: Cann, simulator: Simulator
) -> None:
    executor, _ = planned_relu(cann)
    simulator.fail("aclnnRelu", status=361001)
    assert cann.aclnnRelu(None, 0, executor, None) == 361001
    cann.aclDestroyAclOpExecutor(executor)
    (line,) = simulator.violations()
    assert "this is a destroyed aclOpExecutor" in line


def test_no_executor_answers_161001(cann: Cann) -> None:
    assert cann.aclnnRelu(None, 0, None, None) == 161001


def test_an_executor_of_another_operator_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    executor, _ = planned_relu(cann)
    assert cann.aclnnExp(None, 0, executor, None) == 561000
    assert simulator.violations() == ["aclnnExp: the executor is one of aclnnRelu"]


def test_no_workspace_where_one_is_needed_uses_up_the_executor(
    cann: Cann, simulator: Simulator
) -> None:
    plan, _ = planned_mul(cann)
    assert cann.aclnnMul(None, plan.workspace, plan.executor, None) == 161001
    assert "aclOpExecutor" not in simulator.live_objects()


def test_no_workspace_leaves_the_executor_of_a_single_kernel(
    cann: Cann, simulator: Simulator
) -> None:
    plan = planned_logit(cann)
    assert cann.aclnnLogit(None, plan.workspace, plan.executor, None) == 161001
    cann.ok(cann.aclDestroyAclOpExecutor(plan.executor))
    assert simulator.violations() == []


def test_a_workspace_too_small_leaves_the_executor_of_a_single_kernel(
    cann: Cann, simulator: Simulator
) -> None:
    plan = planned_logit(cann)
    workspace = cann.device(plan.workspace)
    assert cann.aclnnLogit(workspace, plan.workspace - 1, plan.executor, None) == 161002
    cann.ok(cann.aclnnLogit(workspace, plan.workspace, plan.executor, None))
    assert simulator.violations() == []


def test_a_workspace_too_small_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    plan, _ = planned_mul(cann)
    cann.aclnnMul(cann.device(plan.workspace), plan.workspace - 1, plan.executor, None)
    assert simulator.violations() == [f"aclnnMul: a workspace of {plan.workspace} bytes is needed"]


def test_a_workspace_where_none_is_needed_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    executor, _ = planned_relu(cann)
    cann.aclnnRelu(cann.device(64), 0, executor, None)
    assert simulator.violations() == ["aclnnRelu: a workspace of size 0 is NULL, 0"]


def test_a_workspace_of_the_host_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    plan, _ = planned_mul(cann)
    workspace = cann.pinned(b"-" * plan.workspace)
    cann.ok(cann.aclnnMul(workspace, plan.workspace, plan.executor, None))
    assert simulator.violations() == [
        f"aclnnMul: workspace ({workspace:#x}) is pinned host memory, not device memory"
    ]
    assert cann.aclrtSynchronizeStream(None) == 507015


def test_a_workspace_off_64_bytes_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    plan, _ = planned_mul(cann)
    workspace = cann.device(plan.workspace + 64) + 32
    cann.aclnnMul(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations() == [
        f"aclnnMul: workspace: {workspace:#x} is not on a multiple of 64"
    ]


def test_the_content_of_a_workspace_is_garbage_afterwards(cann: Cann) -> None:
    plan, _ = planned_mul(cann)
    workspace = cann.device(plan.workspace)
    cann.ok(cann.aclrtMemset(workspace, 4, 0, 4))
    cann.ok(cann.aclnnMul(workspace, plan.workspace, plan.executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.download(workspace, 4) == b"\x5a" * 4


def test_a_descriptor_destroyed_between_the_phases_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    executor, (source, _) = planned_relu(cann)
    cann.ok(cann.aclDestroyTensor(source))
    assert cann.aclnnRelu(None, 0, executor, None) == 561103
    assert simulator.violations() == ["aclnnRelu: self was destroyed between the phases"]


def test_a_descriptor_moved_between_the_phases_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    executor, (source, _) = planned_relu(cann)
    cann.ok(cann.aclSetRawTensorAddr(source, cann.device(32)))
    cann.aclnnRelu(None, 0, executor, None)
    assert simulator.violations() == [
        "aclnnRelu: self was given another address between the phases"
    ]


def test_a_scalar_destroyed_between_the_phases_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(3)]
    alpha = cann.aclCreateScalar(byref(c_double(2)), DOUBLE)
    plan = cann.planned("aclnnAdd", *tensors[:2], alpha, tensors[2])
    cann.ok(cann.aclDestroyScalar(alpha))
    cann.aclnnAdd(cann.device(plan.workspace), plan.workspace, plan.executor, None)
    assert simulator.violations() == ["aclnnAdd: alpha was destroyed between the phases"]


def test_a_text_changed_between_the_phases_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    tensors = [cann.tensor(cann.device(16), [8], FLOAT16) for _ in range(3)]
    text = ctypes.create_string_buffer(b"tanh")
    plan = cann.planned("aclnnGeluBackwardV2", tensors[0], tensors[1], text, tensors[2])
    text.value = b"none"
    workspace = cann.device(plan.workspace)
    cann.aclnnGeluBackwardV2(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations() == [
        "aclnnGeluBackwardV2: the text of approximate was changed or freed between the phases"
    ]


def test_descriptors_may_go_as_soon_as_phase_two_returned(cann: Cann, simulator: Simulator) -> None:
    executor, tensors = planned_relu(cann)
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    for tensor in tensors:
        cann.ok(cann.aclDestroyTensor(tensor))
    assert (cann.aclrtSynchronizeStream(None), simulator.violations()) == (0, [])


def test_an_executor_destroyed_after_its_descriptors_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    executor, (source, _) = planned_relu(cann)
    cann.ok(cann.aclDestroyTensor(source))
    cann.ok(cann.aclDestroyAclOpExecutor(executor))
    assert simulator.violations() == [
        "aclDestroyAclOpExecutor: self was destroyed before the executor"
    ]


def test_a_launch_on_a_placeholder_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    tensors = [cann.tensor(512, [8]), cann.tensor(cann.device(32), [8])]
    executor = cann.planned("aclnnRelu", *tensors).executor
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    assert simulator.violations() == ["aclnnRelu: self (0x200) is in no memory of the device"]
    assert cann.aclrtSynchronizeStream(None) == 507015


def test_a_launch_on_freed_memory_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    source, _, *tensors = cann.relu()
    executor = cann.planned("aclnnRelu", *tensors).executor
    cann.ok(cann.aclrtFree(source))
    cann.aclnnRelu(None, 0, executor, None)
    assert simulator.violations() == [f"aclnnRelu: self ({source:#x}) is in memory that was freed"]


def test_a_launch_on_memory_of_another_device_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    executor, _ = planned_relu(cann)
    cann.ok(cann.aclrtSetDevice(1))
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    assert "is memory of device 0, used on device 1" in simulator.violations()[0]


def test_a_tensor_needs_32_bytes_behind_it(cann: Cann, simulator: Simulator) -> None:
    source = cann.made("aclrtMallocAlign32", 32, 0)
    tensors = [cann.tensor(source, [8]), cann.tensor(cann.device(32), [8])]
    cann.aclnnRelu(None, 0, cann.planned("aclnnRelu", *tensors).executor, None)
    assert simulator.violations() == [
        "aclnnRelu: self: 64 bytes at byte 0 of an allocation of 32 bytes"
    ]


def test_ascend_950_needs_nothing_behind_a_tensor(cann: Cann, simulator: Simulator) -> None:
    simulator.set_soc("Ascend950PR_9589")
    executor, _ = planned_relu(cann)
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    assert simulator.violations() == []


def test_a_stream_of_another_context_answers_107003(cann: Cann) -> None:
    executor, _ = planned_relu(cann)
    stream = cann.stream()
    cann.made("aclrtCreateContext", 0)
    assert cann.aclnnRelu(None, 0, executor, stream) == 107003


def test_a_destroyed_stream_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    executor, _ = planned_relu(cann)
    stream = cann.stream()
    cann.ok(cann.aclrtDestroyStream(stream))
    assert cann.aclnnRelu(None, 0, executor, stream) == 107003
    assert len(simulator.violations()) == 1


def test_a_thread_without_context_answers_107002(cann: Cann, simulator: Simulator) -> None:
    executor, _ = planned_relu(cann)
    assert in_thread(lambda: cann.aclnnRelu(None, 0, executor, None)) == 107002
    assert "aclOpExecutor" not in simulator.live_objects()


def test_nothing_is_launched_for_empty_outputs(cann: Cann, simulator: Simulator) -> None:
    tensors = [cann.tensor(None, [0]), cann.tensor(None, [0])]
    executor = cann.planned("aclnnRelu", *tensors).executor
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert simulator.counters()["launches"] == 0


def test_a_workspace_freed_before_the_synchronise_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    plan, _ = planned_mul(cann)
    workspace = cann.device(plan.workspace)
    cann.ok(cann.aclnnMul(workspace, plan.workspace, plan.executor, None))
    cann.aclrtFree(workspace)
    assert simulator.violations() == [
        "aclrtFree: frees bytes that work of stream 0 may still write: nothing orders them"
    ]


def test_an_input_overwritten_before_the_synchronise_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    source, _, *tensors = cann.relu()
    cann.ok(cann.aclnnRelu(None, 0, cann.planned("aclnnRelu", *tensors).executor, None))
    cann.ok(cann.aclrtMemcpy(source, 4, b"abcd", 4, TO_DEVICE))
    assert simulator.violations() == [
        "aclrtMemcpy: writes bytes that work of stream 0 may still read: nothing orders them"
    ]


def test_one_workspace_on_two_streams_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    (first, _), (second, _) = planned_mul(cann), planned_mul(cann)
    workspace = cann.device(first.workspace)
    for plan in (first, second):
        cann.ok(cann.aclnnMul(workspace, plan.workspace, plan.executor, cann.stream()))
    assert simulator.violations() == [
        "aclnnMul: writes bytes that work of stream 1 may still write: nothing orders them"
    ]


def test_one_workspace_serves_the_launches_of_one_stream(cann: Cann, simulator: Simulator) -> None:
    (first, _), (second, _) = planned_mul(cann), planned_mul(cann)
    workspace, stream = cann.device(first.workspace), cann.stream()
    for plan in (first, second):
        cann.ok(cann.aclnnMul(workspace, plan.workspace, plan.executor, stream))
    assert simulator.violations() == []


def test_an_element_of_a_list_must_live_until_phase_two(cann: Cann, simulator: Simulator) -> None:
    elements = (c_void_p * 1)(cann.tensor(cann.device(32), [8]))
    tensors = cann.aclCreateTensorList(elements, 1)
    plan = cann.planned("aclnnCat", tensors, 0, cann.tensor(cann.device(32), [8]))
    cann.aclDestroyTensor(elements[0])
    workspace = cann.device(max(plan.workspace, 64))
    cann.aclnnCat(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations()[1:] == ["aclnnCat: tensors was destroyed between the phases"]


def test_an_element_of_a_list_of_scalars_must_live_until_phase_two(
    cann: Cann, simulator: Simulator
) -> None:
    inputs, outputs = (
        cann.aclCreateTensorList((c_void_p * 1)(cann.tensor(cann.device(32), [8])), 1)
        for _ in range(2)
    )
    scalar = cann.aclCreateScalar(byref(c_double(2)), DOUBLE)
    scalars = cann.aclCreateScalarList((c_void_p * 1)(scalar), 1)
    plan = cann.planned("aclnnForeachAddScalarList", inputs, scalars, outputs)
    cann.aclDestroyScalar(scalar)
    workspace = cann.device(max(plan.workspace, 64))
    cann.aclnnForeachAddScalarList(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations()[1:] == [
        "aclnnForeachAddScalarList: an element of scalars was destroyed between the phases"
    ]


def test_the_elements_of_a_list_must_live_until_phase_two(cann: Cann, simulator: Simulator) -> None:
    elements = (c_void_p * 2)(*[cann.tensor(cann.device(32), [8]) for _ in range(2)])
    tensors = cann.aclCreateTensorList(elements, 2)
    plan = cann.planned("aclnnCat", tensors, 0, cann.tensor(cann.device(64), [16]))
    cann.ok(cann.aclDestroyTensorList(tensors))
    workspace = cann.device(max(plan.workspace, 64))
    cann.aclnnCat(workspace, plan.workspace, plan.executor, None)
    assert simulator.violations() == ["aclnnCat: tensors was destroyed between the phases"]
