"""Phase one: what it checks, and what it answers."""

from __future__ import annotations

from ctypes import byref, c_uint64, c_void_p
from typing import TYPE_CHECKING

import pytest

from .helpers import in_thread
from .raw import BFLOAT16, FLOAT16, SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulator.control import Simulator

    from .raw import Cann

PLACEHOLDER = 512


def refused(cann: Cann, tensor: int | None) -> tuple[int, str]:
    """How phase one of Relu refuses an input: status and reason."""
    target = cann.tensor(cann.device(32), [8])
    status = cann.plan("aclnnRelu", tensor, target).status
    return status, cann.text().split("\n")[0].partition("] ")[2]


def test_the_workspace_grows_with_the_inputs(cann: Cann) -> None:
    inputs = [cann.tensor(cann.device(1200), [300]) for _ in range(2)]
    plan = cann.planned("aclnnMul", *inputs, cann.tensor(cann.device(1200), [300]))
    assert plan.workspace == 2560 + SMALL


def test_some_operators_need_no_workspace(cann: Cann) -> None:
    *_, source, target = cann.relu()
    assert cann.planned("aclnnRelu", source, target).workspace == 0


def test_empty_outputs_need_no_workspace(cann: Cann) -> None:
    empty = [cann.tensor(None, [0, 3]) for _ in range(3)]
    assert cann.planned("aclnnMul", *empty).workspace == 0


def test_an_executor_counts_until_it_is_destroyed(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    plan = cann.planned("aclnnRelu", source, target)
    assert simulator.live_objects()["aclOpExecutor"] == 1
    cann.ok(cann.aclDestroyAclOpExecutor(plan.executor))
    assert "aclOpExecutor" not in simulator.live_objects()


def test_a_missing_input_answers_161001(cann: Cann) -> None:
    assert refused(cann, None) == (161001, "self: must not be nullptr")


def test_an_optional_input_may_be_missing(cann: Cann) -> None:
    tensors = [cann.tensor(cann.device(32), [8]) for _ in range(4)]
    plan = cann.plan("aclnnBinaryCrossEntropyBackward", *tensors[:3], None, 1, tensors[3])
    assert plan.status == 0


def test_no_place_for_the_answers_is_161001(cann: Cann) -> None:
    *_, source, target = cann.relu()
    size, executor = c_uint64(), c_void_p()
    assert cann.aclnnReluGetWorkspaceSize(source, target, None, byref(executor)) == 161001
    assert cann.aclnnReluGetWorkspaceSize(source, target, byref(size), None) == 161001


def test_a_failed_phase_one_leaves_an_executor_that_is_dead(
    cann: Cann, simulator: Simulator
) -> None:
    plan = cann.plan("aclnnRelu", None, None)
    assert plan.workspace == 0xA5A5A5A5A5A5A5A5
    cann.aclnnRelu(None, 0, plan.executor, None)
    (line,) = simulator.violations()
    assert "this is a destroyed aclOpExecutor" in line


def test_a_thread_without_context_answers_107002(cann: Cann) -> None:
    *_, source, target = cann.relu()
    assert in_thread(lambda: cann.plan("aclnnRelu", source, target).status) == 107002


def test_an_unset_opp_path_answers_561107(cann: Cann, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_OPP_PATH")
    *_, source, target = cann.relu()
    assert cann.plan("aclnnRelu", source, target).status == 561107


def test_a_device_that_failed_for_good_answers_361001(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    simulator.fail("aclrtSynchronizeStream", status=507010, what="sticky")
    cann.aclrtSynchronizeStream(None)
    assert cann.plan("aclnnRelu", source, target).status == 361001
    assert cann.aclrtPeekAtLastError(0) == 507010


def test_a_dead_input_is_a_violation(cann: Cann, simulator: Simulator) -> None:
    tensor = cann.tensor(cann.device(32), [8])
    cann.ok(cann.aclDestroyTensor(tensor))
    assert refused(cann, tensor)[0] == 561103
    assert len(simulator.violations()) == 1


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "storage", "reason"),
    [
        ([1] * 9, None, 0, [1], "self: 9 dimensions, 8 are the most"),
        ([-1], None, 0, [1], "self: an extent is negative"),
        ([8], [-1], 8, [8], "self: a stride is negative"),
        ([8], None, -1, [8], "self: the offset is negative"),
        ([8], None, 0, [-8], "self: an extent of the storage is negative"),
        ([8], None, 1, [8], "self: the view ends at element 8 of a storage of 8"),
        ([2, 3], [4, 1], 0, [6], "self: the view ends at element 6 of a storage of 6"),
    ],
)
def test_a_layout_that_cannot_be_answers_161002(
    cann: Cann,
    shape: Sequence[int],
    strides: Sequence[int] | None,
    offset: int,
    storage: Sequence[int],
    reason: str,
) -> None:
    address = cann.device(256)
    tensor = cann.tensor(address, shape, strides=strides, offset=offset, storage=storage)
    assert refused(cann, tensor) == (161002, reason)


def test_an_unknown_dtype_answers_161002(cann: Cann) -> None:
    assert refused(cann, cann.tensor(cann.device(32), [8], 5)) == (161002, "self: 5 is no dtype")


def test_an_expanded_input_is_taken(cann: Cann) -> None:
    source = cann.tensor(cann.device(32), [8], strides=[0], storage=[1])
    assert cann.plan("aclnnRelu", source, cann.tensor(cann.device(32), [8])).status == 0


def test_an_expanded_output_answers_161002(cann: Cann) -> None:
    target = cann.tensor(cann.device(32), [8], strides=[0], storage=[1])
    assert cann.plan("aclnnRelu", cann.tensor(cann.device(32), [8]), target).status == 161002


def test_an_address_off_32_bytes_answers_161002(cann: Cann) -> None:
    status, reason = refused(cann, cann.tensor(cann.device(64) + 4, [8]))
    assert (status, reason.endswith("is not on a multiple of 32")) == (161002, True)


def test_a_tensor_without_data_answers_161001(cann: Cann) -> None:
    assert refused(cann, cann.tensor(None, [8])) == (161001, "self: its data must not be nullptr")


def test_an_empty_tensor_needs_no_data(cann: Cann) -> None:
    empty = [cann.tensor(None, [0]), cann.tensor(None, [0])]
    assert cann.plan("aclnnRelu", *empty).status == 0


def test_a_placeholder_address_is_taken(cann: Cann, simulator: Simulator) -> None:
    tensors = [cann.tensor(PLACEHOLDER, [8]), cann.tensor(PLACEHOLDER, [8])]
    assert (cann.plan("aclnnRelu", *tensors).status, simulator.violations()) == (0, [])


def test_a_storage_larger_than_its_allocation_is_a_violation(
    cann: Cann, simulator: Simulator
) -> None:
    assert refused(cann, cann.tensor(cann.device(31), [8]))[0] == 161002
    assert simulator.violations() == [
        "aclnnReluGetWorkspaceSize: self: a storage of 32 bytes where the allocation has 31 left"
    ]


@pytest.mark.parametrize(
    ("soc", "status"),
    [("Ascend910B2", 0), ("Ascend910_9362", 0), ("Ascend910A", 561003), ("Ascend310P3", 561003)],
)
def test_bfloat16_needs_a_product_that_has_it(
    cann: Cann, simulator: Simulator, soc: str, status: int
) -> None:
    simulator.set_soc(soc)
    tensors = [cann.tensor(cann.device(16), [8], BFLOAT16) for _ in range(2)]
    assert cann.plan("aclnnRelu", *tensors).status == status


def test_the_operator_s_own_check_answers_161002(cann: Cann) -> None:
    tensors = [cann.tensor(cann.device(32), shape) for shape in ([8], [8], [4])]
    assert cann.plan("aclnnMaximum", *tensors).status == 161002


def test_the_tensors_of_a_list_are_checked(cann: Cann) -> None:
    elements = (c_void_p * 2)(
        cann.tensor(cann.device(32), [8]), cann.tensor(cann.device(32) + 4, [4])
    )
    tensors = cann.aclCreateTensorList(elements, 2)
    assert cann.plan("aclnnCat", tensors, 0, cann.tensor(cann.device(48), [12])).status == 161002


def test_a_required_text_must_be_there(cann: Cann) -> None:
    tensors = [cann.tensor(cann.device(16), [8], FLOAT16) for _ in range(3)]
    plan = cann.plan("aclnnGeluBackwardV2", tensors[0], tensors[1], None, tensors[2])
    assert (plan.status, cann.text()) == (
        161001,
        "EZ1001: [aclnnGeluBackwardV2GetWorkspaceSize] approximate: must not be nullptr\n",
    )


def test_the_deterministic_option_of_the_process_is_read(cann: Cann, simulator: Simulator) -> None:
    *_, source, target = cann.relu()
    cann.ok(cann.aclrtSetSysParamOpt(0, 1))
    cann.ok(cann.aclnnRelu(None, 0, cann.planned("aclnnRelu", source, target).executor, None))
    cann.ok(cann.aclrtSynchronizeStream(None))
    assert simulator.counters()["deterministic_launches"] == 1


def test_a_list_of_null_is_no_tensor(cann: Cann) -> None:
    tensors = cann.aclCreateTensorList((c_void_p * 1)(None), 1)
    assert cann.plan("aclnnCat", tensors, 0, cann.tensor(cann.device(32), [8])).status == 0
