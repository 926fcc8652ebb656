"""What a launch may touch, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .helpers import planned_mul, planned_relu
from .raw import INT8, TO_DEVICE

if TYPE_CHECKING:
    from tests.simulator.control import Simulator

    from .raw import Cann


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


def zeroed(cann: Cann, tensor: int) -> None:
    plan = cann.planned("aclnnInplaceZero", tensor)
    assert plan.workspace == 0
    cann.ok(cann.aclnnInplaceZero(None, 0, plan.executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))


def test_the_kernel_of_zeros_computes_though_kernels_do_not(
    cann: Cann, simulator: Simulator
) -> None:
    address = cann.upload(b"x" * 48)
    zeroed(cann, cann.tensor(address, [8]))
    assert cann.download(address, 48) == bytes(32) + b"x" * 16
    counters = simulator.counters()
    assert (counters["launches"], counters["bytes_filled_by_copies"]) == (1, 0)


def test_the_kernel_of_zeros_fills_a_view_and_nothing_else(cann: Cann) -> None:
    address = cann.upload(b"x" * 12)
    zeroed(cann, cann.tensor(address, [2, 2], INT8, strides=[6, 2], offset=1, storage=[12]))
    assert cann.download(address, 12) == b"x\0x\0xxx\0x\0xx"
    address = cann.upload(b"x" * 12)
    zeroed(cann, cann.tensor(address, [2, 2], INT8, strides=[6, 1], offset=2, storage=[12]))
    assert cann.download(address, 12) == b"xx\0\0xxxx\0\0xx"
    address = cann.upload(b"x" * 4)
    zeroed(cann, cann.tensor(address, [], INT8, storage=[1]))
    assert cann.download(address, 4) == b"\0xxx"


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
