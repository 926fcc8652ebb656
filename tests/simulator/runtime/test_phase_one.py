"""Phase one: what it checks, and what it answers."""

from collections.abc import Callable
from ctypes import byref, c_uint64, c_void_p
from typing import Any

import pytest

from .helpers import in_thread
from .raw import BFLOAT16, FLOAT16, SMALL, Cann

PLACEHOLDER = 512


def refused(cann: Cann, tensor: int | None) -> tuple[int, str]:
    """How phase one of Relu refuses an input: status and reason."""
    status = cann.plan("aclnnRelu", tensor, *cann.tensors(1)).status
    return status, cann.text().split("\n")[0].partition("] ")[2]


def test_the_workspace_grows_with_the_inputs_where_one_is_needed(cann: Cann) -> None:
    assert cann.planned("aclnnMul", *cann.tensors(3, 300)).workspace == 2560 + SMALL
    assert cann.planned("aclnnRelu", *cann.tensors(2)).workspace == 0
    empty = [cann.tensor(None, [0, 3]) for _ in range(3)]
    assert cann.planned("aclnnMul", *empty).workspace == 0


def test_an_executor_counts_until_it_is_destroyed(cann: Cann) -> None:
    executor, _ = cann.planned_relu()
    assert cann.live_objects()["aclOpExecutor"] == 1
    cann.ok(cann.aclDestroyAclOpExecutor(executor))
    assert "aclOpExecutor" not in cann.live_objects()


def test_what_is_required_must_be_there_and_live(cann: Cann) -> None:
    assert refused(cann, None) == (161001, "self: must not be nullptr")
    *three, out = cann.tensors(4)
    name = "aclnnBinaryCrossEntropyBackward"
    assert cann.plan(name, *three, None, 1, out).status == 0  # an optional input
    first, second, out = cann.tensors(3, 8, FLOAT16)
    assert cann.plan("aclnnGeluBackwardV2", first, second, None, out).status == 161001
    assert cann.text() == (
        "EZ1001: [aclnnGeluBackwardV2GetWorkspaceSize] approximate: must not be nullptr\n"
    )
    *_, source, target = cann.relu()
    size, executor = c_uint64(), c_void_p()
    assert cann.aclnnReluGetWorkspaceSize(source, target, None, byref(executor)) == 161001
    assert cann.aclnnReluGetWorkspaceSize(source, target, byref(size), None) == 161001
    (tensor,) = cann.tensors(1)
    cann.ok(cann.aclDestroyTensor(tensor))
    assert refused(cann, tensor)[0] == 561103
    assert len(cann.violations()) == 1


def test_a_failed_phase_one_leaves_an_executor_that_is_dead(cann: Cann) -> None:
    plan = cann.plan("aclnnRelu", None, None)
    assert plan.workspace == 0xA5A5A5A5A5A5A5A5
    cann.aclnnRelu(None, 0, plan.executor, None)
    (line,) = cann.violations()
    assert "this is a destroyed aclOpExecutor" in line


def test_a_thread_without_context_an_unset_opp_path_and_a_failed_device_are_told_apart(
    cann: Cann, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = cann.tensors(2)
    assert in_thread(lambda: cann.plan("aclnnRelu", *tensors).status) == 107002
    with monkeypatch.context() as changed:
        changed.delenv("ASCEND_OPP_PATH")
        assert cann.plan("aclnnRelu", *cann.tensors(2)).status == 561107
    tensors = cann.tensors(2)
    cann.fail("aclrtSynchronizeStream", status=507010, what="sticky")
    cann.aclrtSynchronizeStream(None)
    assert cann.plan("aclnnRelu", *tensors).status == 361001
    assert cann.aclrtPeekAtLastError(0) == 507010


LAYOUTS: list[tuple[dict[str, Any], str]] = [
    ({"shape": [1] * 9, "storage": [1]}, "self: 9 dimensions, 8 are the most"),
    ({"shape": [-1], "storage": [1]}, "self: an extent is negative"),
    ({"shape": [8], "strides": [-1], "offset": 8}, "self: a stride is negative"),
    ({"shape": [8], "offset": -1}, "self: the offset is negative"),
    ({"shape": [8], "storage": [-8]}, "self: an extent of the storage is negative"),
    ({"shape": [8], "offset": 1}, "self: the view ends at element 8 of a storage of 8"),
    ({"shape": [2, 3], "strides": [4, 1], "storage": [6]},
     "self: the view ends at element 6 of a storage of 6"),
    ({"shape": [8], "dtype": 5}, "self: 5 is no dtype"),
]  # fmt: skip


def test_a_layout_or_dtype_that_cannot_be_answers_161002_and_of_outputs_an_expanded_one(
    cann: Cann,
) -> None:
    for layout, reason in LAYOUTS:
        assert refused(cann, cann.tensor(cann.device(256), **layout)) == (161002, reason)
    expanded = cann.tensor(cann.device(32), [8], strides=[0], storage=[1])
    (other,) = cann.tensors(1)
    assert cann.plan("aclnnRelu", expanded, other).status == 0
    assert cann.plan("aclnnRelu", other, expanded).status == 161002


def test_an_address_is_on_a_multiple_of_32_and_there_where_there_are_elements(cann: Cann) -> None:
    status, reason = refused(cann, cann.tensor(cann.device(64) + 4, [8]))
    assert (status, reason.endswith("is not on a multiple of 32")) == (161002, True)
    assert refused(cann, cann.tensor(None, [8])) == (161001, "self: its data must not be nullptr")
    for address, size in (None, 0), (PLACEHOLDER, 8):
        tensors = [cann.tensor(address, [size]) for _ in range(2)]
        assert cann.plan("aclnnRelu", *tensors).status == 0
    assert cann.violations() == []
    assert refused(cann, cann.tensor(cann.device(31), [8]))[0] == 161002
    said = "self: a storage of 32 bytes where the allocation has 31 left"
    assert cann.violations() == [f"aclnnReluGetWorkspaceSize: {said}"]


def test_bfloat16_needs_a_product_that_has_it(cann: Cann) -> None:
    socs = {"Ascend910B2": 0, "Ascend910_9362": 0, "Ascend910A": 561003, "Ascend310P3": 561003}
    tensors = cann.tensors(2, 8, BFLOAT16)

    def status(soc: str) -> int:
        cann.set_soc(soc)
        return cann.plan("aclnnRelu", *tensors).status

    assert {soc: status(soc) for soc in socs} == socs


def other_shape(cann: Cann) -> int:
    return cann.plan("aclnnMaximum", *cann.tensors(2), *cann.tensors(1, 4)).status


def off_32_in_a_list(cann: Cann) -> int:
    tensors = cann.list_of(*cann.tensors(1), cann.tensor(cann.device(32) + 4, [4]))
    return cann.plan("aclnnCat", tensors, 0, *cann.tensors(1, 12)).status


def null_in_a_list(cann: Cann) -> int:
    return cann.plan("aclnnCat", cann.list_of(None), 0, *cann.tensors(1)).status


@pytest.mark.parametrize(
    ("plan", "status"), [(other_shape, 161002), (off_32_in_a_list, 161002), (null_in_a_list, 0)]
)
def test_the_operator_s_own_check_and_the_tensors_of_a_list_are_looked_at(
    cann: Cann, plan: Callable[[Cann], int], status: int
) -> None:
    assert plan(cann) == status


def test_the_deterministic_option_of_the_process_is_read(cann: Cann) -> None:
    cann.ok(cann.aclrtSetSysParamOpt(0, 1))
    cann.relu_once()
    assert cann.counters()["deterministic_launches"] == 1
