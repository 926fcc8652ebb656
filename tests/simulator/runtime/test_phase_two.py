"""Phase two: executors and workspaces."""

from __future__ import annotations

import struct
from ctypes import byref, c_double
from typing import TYPE_CHECKING

from .helpers import in_thread, planned_logit, planned_mul, planned_relu
from .raw import DOUBLE, FLOAT16

if TYPE_CHECKING:
    import pytest
    from tests.simulator.control import Simulator

    from .raw import Cann


def test_a_launch_computes(
    cann: Cann, simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulator.set_kernels("python")
    left, right = struct.pack("3f", 1, 2, 3), struct.pack("3f", 10, 20, 30)
    target, stream = cann.device(12), cann.stream()
    alpha = cann.aclCreateScalar(byref(c_double(2)), DOUBLE)
    tensors = [cann.tensor(cann.upload(content), [3]) for content in (left, right)]
    plan = cann.planned("aclnnRsub", *tensors, alpha, cann.tensor(target, [3]))
    cann.ok(cann.aclnnRsub(cann.device(plan.workspace), plan.workspace, plan.executor, stream))
    cann.ok(cann.aclrtSynchronizeStream(stream))
    assert struct.unpack("3f", cann.download(target, 12)) == (8, 16, 24)


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


def test_a_device_that_failed_for_good_answers_361001(cann: Cann, simulator: Simulator) -> None:
    executor, _ = planned_relu(cann)
    simulator.fail("aclrtSynchronizeStream", status=507010, what="sticky")
    cann.aclrtSynchronizeStream(None)
    assert cann.aclnnRelu(None, 0, executor, None) == 361001
    assert cann.aclrtPeekAtLastError(0) == 507010


def test_nothing_is_launched_for_empty_outputs(cann: Cann, simulator: Simulator) -> None:
    tensors = [cann.tensor(None, [0]), cann.tensor(None, [0])]
    executor = cann.planned("aclnnRelu", *tensors).executor
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert simulator.counters()["launches"] == 0
