"""Phase two: executors and workspaces, what must live until it, what a launch may touch."""

import ctypes
import struct

import pytest

from .helpers import in_thread
from .raw import FLOAT16, INT8, TO_DEVICE, Cann

DEAD = "this is a destroyed aclOpExecutor"


def the_violation(cann: Cann) -> str:
    (line,) = cann.violations()
    return line


def test_a_launch_computes_and_a_stream_without_infnan_saturates(cann: Cann) -> None:
    cann.set_kernels("python")
    numbers, nan = struct.pack("3e", 60000, -60000, float("nan")), float("nan")
    for mode, expected in (1, [float("inf"), -float("inf"), nan]), (0, [65504, -65504, 0]):
        cann.ok(cann.aclrtSetDeviceSatMode(mode))
        target, stream = cann.device(6), cann.stream()
        tensors = [cann.tensor(cann.upload(numbers), [3], FLOAT16) for _ in range(2)]
        arguments = *tensors, cann.double(-1), cann.tensor(target, [3], FLOAT16)
        cann.ok(cann.run("aclnnRsub", cann.planned("aclnnRsub", *arguments), stream))
        cann.ok(cann.aclrtSynchronizeStream(stream))
        assert struct.unpack("3e", cann.download(target, 6)) == pytest.approx(expected, nan_ok=True)


def test_a_kernel_that_raises_shows_at_the_synchronise(
    cann: Cann, capfd: pytest.CaptureFixture[str]
) -> None:
    cann.set_kernels("python")
    # No formula takes an input of float16 and an output of float32.
    first, second = cann.tensors(2, 8, FLOAT16)
    target = cann.tensor(cann.device(64), [16])
    plan = cann.planned("aclnnGeluBackwardV2", first, second, b"tanh", target)
    cann.ok(cann.run("aclnnGeluBackwardV2", plan))
    assert cann.aclrtSynchronizeStream(None) == 507015
    assert "Traceback" in cann.text()
    assert "Traceback" in capfd.readouterr().err


@pytest.mark.parametrize("status", [0, 361001])
def test_an_executor_is_gone_after_phase_two_whether_it_failed_or_not(
    cann: Cann, status: int
) -> None:
    executor, _ = cann.planned_relu()
    if status:
        cann.fail("aclnnRelu", status=status)
    assert cann.aclnnRelu(None, 0, executor, None) == status
    assert "aclOpExecutor" not in cann.live_objects()
    cann.aclnnRelu(None, 0, executor, None)
    assert DEAD in the_violation(cann)


def test_no_executor_or_that_of_another_operator_is_refused(cann: Cann) -> None:
    assert cann.aclnnRelu(None, 0, None, None) == 161001
    executor, _ = cann.planned_relu()
    assert cann.aclnnExp(None, 0, executor, None) == 561000
    assert the_violation(cann) == "aclnnExp: the executor is one of aclnnRelu"


def test_no_workspace_uses_up_the_executor_but_not_that_of_a_single_kernel(cann: Cann) -> None:
    plan = cann.planned_mul()
    assert cann.aclnnMul(None, plan.workspace, plan.executor, None) == 161001
    assert "aclOpExecutor" not in cann.live_objects()
    plan = cann.planned_logit()
    assert cann.aclnnLogit(None, plan.workspace, plan.executor, None) == 161001
    cann.ok(cann.aclDestroyAclOpExecutor(plan.executor))
    plan = cann.planned_logit()
    workspace = cann.device(plan.workspace)
    assert cann.aclnnLogit(workspace, plan.workspace - 1, plan.executor, None) == 161002
    cann.ok(cann.aclnnLogit(workspace, plan.workspace, plan.executor, None))
    assert cann.violations() == []


def test_a_workspace_that_is_not_as_planned_is_a_violation(cann: Cann) -> None:
    plan = cann.planned_mul()
    size = plan.workspace
    cann.aclnnMul(cann.device(size), size - 1, plan.executor, None)
    assert the_violation(cann) == f"aclnnMul: a workspace of {size} bytes is needed"
    executor, _ = cann.planned_relu()
    cann.aclnnRelu(cann.device(64), 0, executor, None)
    assert the_violation(cann) == "aclnnRelu: a workspace of size 0 is NULL, 0"
    off = cann.device(size + 64) + 32
    cann.aclnnMul(off, size, cann.planned_mul().executor, None)
    assert the_violation(cann) == f"aclnnMul: workspace: {off:#x} is not on a multiple of 64"
    of_host = cann.pinned(b"-" * size)
    cann.ok(cann.aclnnMul(of_host, size, cann.planned_mul().executor, None))
    said = f"aclnnMul: workspace ({of_host:#x}) is pinned host memory, not device memory"
    assert the_violation(cann) == said
    assert cann.aclrtSynchronizeStream(None) == 507015


def test_the_content_of_a_workspace_is_garbage_afterwards(cann: Cann) -> None:
    plan = cann.planned_mul()
    workspace = cann.device(plan.workspace)
    cann.ok(cann.aclrtMemset(workspace, 4, 0, 4))
    cann.ok(cann.aclnnMul(workspace, plan.workspace, plan.executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.download(workspace, 4) == b"\x5a" * 4


def test_a_stream_a_thread_or_a_device_that_takes_no_work_has_its_answer(cann: Cann) -> None:
    stream, other = cann.stream(), cann.stream()
    cann.ok(cann.aclrtDestroyStream(stream))
    assert cann.aclnnRelu(None, 0, cann.planned_relu()[0], stream) == 107003
    assert len(cann.violations()) == 1
    cann.made("aclrtCreateContext", 0)
    assert cann.aclnnRelu(None, 0, cann.planned_relu()[0], other) == 107003
    executor, _ = cann.planned_relu()
    assert in_thread(lambda: cann.aclnnRelu(None, 0, executor, None)) == 107002
    assert "aclOpExecutor" not in cann.live_objects()
    executor, _ = cann.planned_relu()
    cann.fail("aclrtSynchronizeStream", status=507010, what="sticky")
    cann.aclrtSynchronizeStream(None)
    assert cann.aclnnRelu(None, 0, executor, None) == 361001
    assert cann.aclrtPeekAtLastError(0) == 507010


def test_nothing_is_launched_for_empty_outputs(cann: Cann) -> None:
    plan = cann.planned("aclnnRelu", cann.tensor(None, [0]), cann.tensor(None, [0]))
    cann.ok(cann.run("aclnnRelu", plan))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.counters()["launches"] == 0


# --- What must live unchanged from phase one to phase two -----------------------------------------


def test_a_descriptor_destroyed_or_moved_between_the_phases_is_a_violation(cann: Cann) -> None:
    executor, (source, _) = cann.planned_relu()
    cann.ok(cann.aclDestroyTensor(source))
    assert cann.aclnnRelu(None, 0, executor, None) == 561103
    assert the_violation(cann) == "aclnnRelu: self was destroyed between the phases"
    executor, (source, _) = cann.planned_relu()
    cann.ok(cann.aclSetRawTensorAddr(source, cann.device(32)))
    cann.aclnnRelu(None, 0, executor, None)
    assert the_violation(cann) == "aclnnRelu: self was given another address between the phases"
    executor, (source, _) = cann.planned_relu()
    cann.ok(cann.aclDestroyTensor(source))
    cann.ok(cann.aclDestroyAclOpExecutor(executor))
    said = "aclDestroyAclOpExecutor: self was destroyed before the executor"
    assert the_violation(cann) == said


def test_a_scalar_or_a_text_must_live_unchanged_until_phase_two(cann: Cann) -> None:
    first, second, out = cann.tensors(3)
    alpha = cann.double(2)
    plan = cann.planned("aclnnAdd", first, second, alpha, out)
    cann.ok(cann.aclDestroyScalar(alpha))
    cann.run("aclnnAdd", plan)
    assert the_violation(cann) == "aclnnAdd: alpha was destroyed between the phases"
    first, second, out = cann.tensors(3, 8, FLOAT16)
    text = ctypes.create_string_buffer(b"tanh")
    plan = cann.planned("aclnnGeluBackwardV2", first, second, text, out)
    text.value = b"none"
    cann.run("aclnnGeluBackwardV2", plan)
    said = "the text of approximate was changed or freed between the phases"
    assert the_violation(cann) == f"aclnnGeluBackwardV2: {said}"


def test_a_list_and_its_elements_must_live_until_phase_two(cann: Cann) -> None:
    element, target = cann.tensors(2)
    tensors = cann.list_of(element)
    plan = cann.planned("aclnnCat", tensors, 0, target)
    cann.aclDestroyTensor(element)
    cann.run("aclnnCat", plan)
    assert cann.violations()[1:] == ["aclnnCat: tensors was destroyed between the phases"]
    tensors = cann.list_of(*cann.tensors(2))
    plan = cann.planned("aclnnCat", tensors, 0, cann.tensor(cann.device(64), [16]))
    cann.ok(cann.aclDestroyTensorList(tensors))
    cann.run("aclnnCat", plan)
    assert cann.violations() == ["aclnnCat: tensors was destroyed between the phases"]
    inputs, outputs = (cann.list_of(each) for each in cann.tensors(2))
    scalar, name = cann.double(2), "aclnnForeachAddScalarList"
    plan = cann.planned(name, inputs, cann.list_of(scalar, kind="Scalar"), outputs)
    cann.aclDestroyScalar(scalar)
    cann.run(name, plan)
    said = f"{name}: an element of scalars was destroyed between the phases"
    assert cann.violations()[1:] == [said]


def test_descriptors_may_go_as_soon_as_phase_two_returned(cann: Cann) -> None:
    executor, tensors = cann.planned_relu()
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    for tensor in tensors:
        cann.ok(cann.aclDestroyTensor(tensor))
    assert (cann.aclrtSynchronizeStream(None), cann.violations()) == (0, [])


# --- What a launch may touch, and until when ------------------------------------------------------


def test_a_launch_on_memory_that_is_not_there_is_a_violation(cann: Cann) -> None:
    source, _, *tensors = cann.relu()
    executor = cann.planned("aclnnRelu", *tensors).executor
    cann.ok(cann.aclrtFree(source))
    cann.aclnnRelu(None, 0, executor, None)
    assert the_violation(cann) == f"aclnnRelu: self ({source:#x}) is in memory that was freed"
    tensors = [cann.tensor(512, [8]), *cann.tensors(1)]  # a placeholder
    cann.ok(cann.run("aclnnRelu", cann.planned("aclnnRelu", *tensors)))
    assert the_violation(cann) == "aclnnRelu: self (0x200) is in no memory of the device"
    assert cann.aclrtSynchronizeStream(None) == 507015
    executor, _ = cann.planned_relu()
    cann.ok(cann.aclrtSetDevice(1))
    cann.ok(cann.aclnnRelu(None, 0, executor, None))
    assert "is memory of device 0, used on device 1" in cann.violations()[0]


def test_a_tensor_needs_32_bytes_behind_it_but_on_ascend_950(cann: Cann) -> None:
    tensors = [cann.tensor(cann.made("aclrtMallocAlign32", 32, 0), [8]), *cann.tensors(1)]
    cann.run("aclnnRelu", cann.planned("aclnnRelu", *tensors))
    said = "aclnnRelu: self: 64 bytes at byte 0 of an allocation of 32 bytes"
    assert the_violation(cann) == said
    cann.set_soc("Ascend950PR_9589")
    cann.ok(cann.aclnnRelu(None, 0, cann.planned_relu()[0], None))
    assert cann.violations() == []


@pytest.mark.parametrize(
    ("before", "layout", "after"),
    [(b"x" * 48, ([8],), bytes(32) + b"x" * 16),
     (b"x" * 12, ([2, 2], INT8, [6, 2], 1, [12]), b"x\0x\0xxx\0x\0xx"),
     (b"x" * 12, ([2, 2], INT8, [6, 1], 2, [12]), b"xx\0\0xxxx\0\0xx"),
     (b"x" * 4, ([], INT8, None, 0, [1]), b"\0xxx")],
)  # fmt: skip
def test_the_kernel_of_zeros_fills_a_view_and_nothing_else_though_kernels_compute_nothing(
    cann: Cann, before: bytes, layout: tuple, after: bytes
) -> None:
    address = cann.upload(before)
    shape, dtype, strides, offset, storage = (*layout, 0, None, 0, None)[:5]
    tensor = cann.tensor(address, shape, dtype, strides=strides, offset=offset, storage=storage)
    plan = cann.planned("aclnnInplaceZero", tensor)
    assert plan.workspace == 0
    cann.ok(cann.run("aclnnInplaceZero", plan))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert cann.download(address, len(before)) == after
    counters = cann.counters()
    assert (counters["launches"], counters["bytes_filled_by_copies"]) == (1, 0)


def test_what_a_launch_uses_may_not_be_freed_or_overwritten_before_the_synchronise(
    cann: Cann,
) -> None:
    plan = cann.planned_mul()
    workspace = cann.device(plan.workspace)
    cann.ok(cann.aclnnMul(workspace, plan.workspace, plan.executor, None))
    cann.aclrtFree(workspace)
    said = "bytes that work of stream 0 may still"
    assert the_violation(cann) == f"aclrtFree: frees {said} write: nothing orders them"
    source, _, *tensors = cann.relu()
    cann.ok(cann.run("aclnnRelu", cann.planned("aclnnRelu", *tensors)))
    cann.ok(cann.aclrtMemcpy(source, 4, b"abcd", 4, TO_DEVICE))
    assert the_violation(cann) == f"aclrtMemcpy: writes {said} read: nothing orders them"


@pytest.mark.parametrize("streams", [1, 2])
def test_one_workspace_serves_the_launches_of_one_stream_alone(cann: Cann, streams: int) -> None:
    plans = [cann.planned_mul() for _ in range(2)]
    workspace, on = cann.device(plans[0].workspace), [cann.stream() for _ in range(streams)]
    for plan, stream in zip(plans, (on[0], on[-1]), strict=True):
        cann.ok(cann.aclnnMul(workspace, plan.workspace, plan.executor, stream))
    said = "aclnnMul: writes bytes that work of stream 1 may still write: nothing orders them"
    assert cann.violations() == [said] * (streams - 1)
