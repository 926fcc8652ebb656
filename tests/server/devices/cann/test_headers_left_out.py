"""What is declared and not served, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from npucall_server.devices.cann.headers import Excluded, read

from .header_folders import RELU, both, folder_of, phase_one, phase_two

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("aclnnAllGatherMatmul", both("aclnnAllGatherMatmul", f"{RELU}, const char *group"),
         "communicates between devices: group"),
        ("aclnnX", both("aclnnX", f"{RELU}, char *groupEp, const char *groupTp"),
         "communicates between devices: groupEp, groupTp"),
        ("aclnnX", both("aclnnX", f"{RELU}, char *hcclComm"),
         "communicates between devices: hcclComm"),
        ("aclnnTransQuantParam", phase_two("aclnnTransQuantParam", "const float *scale"),
         "a helper without executor"),
        ("aclnnX", phase_two("aclnnX"), "its first phase is missing"),
        ("aclnnX", phase_one("aclnnX", RELU), "its second phase is missing"),
        ("aclnnX", phase_one("aclnnX", RELU) + phase_two("aclnnX", "void *workspace"),
         "its second phase does not take void*, uint64_t, aclOpExecutor*, aclrtStream"),
        ("aclnnX", f"aclnnStatus aclnnXGetWorkspaceSize({RELU});{phase_two('aclnnX')}",
         "its first phase does not end with uint64_t*, aclOpExecutor**"),
        ("aclnnX", both("aclnnX", f"{RELU}, uint32_t seed"),
         "seed: expected a type of an attribute, found uint32_t"),
        ("aclnnX", both("aclnnX", f"{RELU}, aclTensor **all"),
         "all: expected a type of an attribute, found aclTensor**"),
        ("aclnnX", both("aclnnX", f"{RELU}, int64_t dim = 0"),
         "expected parameters of a type and a name, found 'int64_t dim = 0'"),
        ("aclnnX", both("aclnnX", f"{RELU}, {'x ' * 50}"),
         f"expected parameters of a type and a name, found '{'x ' * 30}'"),
        ("aclnnX", both("aclnnX", f"{RELU}, int64_t self"),
         "two of its parameters have the same name"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_left_out_with_the_reason(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    headers = read([folder_of(tmp_path, aclnn_x=text, aclnn_relu=both("aclnnRelu", RELU))])
    assert headers.excluded == [Excluded(name, reason, "aclnn_x.h")]
    assert list(headers.operators) == ["aclnnRelu"]


@pytest.mark.parametrize(
    "name",
    ["aclnnNonzero", "aclnnNonzeroV2", "aclnnNonZero", "aclnnUnique2", "aclnnUniqueConsecutive",
     "aclnnMaskedSelect", "aclnnNonMaxSuppression"],
)  # fmt: skip
def test_an_operator_is_left_out_if_the_shapes_of_its_outputs_depend_on_the_data(
    tmp_path: Path, name: str
) -> None:
    reason = "the shapes of its outputs depend on the data"
    headers = read([folder_of(tmp_path, aclnn_x=both(name, RELU))])
    assert headers.excluded == [Excluded(name, reason, "aclnn_x.h")]


@pytest.mark.parametrize("parameter", ["const char *mode", "int64_t group", "aclTensor *groupList"])
def test_a_group_that_is_no_text_does_not_communicate(tmp_path: Path, parameter: str) -> None:
    folder_of(tmp_path, aclnn_x=both("aclnnX", f"{RELU}, {parameter}"))
    assert list(read([tmp_path]).operators) == ["aclnnX"]


def test_a_folder_called_as_a_header_is_reported(tmp_path: Path) -> None:
    (folder_of(tmp_path, relu=both("aclnnRelu", RELU)) / "strange.h").mkdir()
    assert read([tmp_path]).excluded == [Excluded("strange.h", "not a file", "strange.h")]


def test_a_header_that_cannot_be_read_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    # A file for the system that fails when read, for root too.
    (folder_of(tmp_path, relu=both("aclnnRelu", RELU)) / "bad.h").symlink_to("/proc/self/mem")
    headers = read([tmp_path])
    assert headers.excluded == [Excluded("bad.h", "cannot be read: Input/output error", "bad.h")]
    assert list(headers.operators) == ["aclnnRelu"]


def test_what_is_left_out_comes_by_name(tmp_path: Path) -> None:
    folder_of(tmp_path, a=phase_two("aclnnC") + phase_two("aclnnA"), b=phase_two("aclnnB"))
    (tmp_path / "strange.h").mkdir()
    assert [left_out.name for left_out in read([tmp_path]).excluded] == [
        "aclnnA",
        "aclnnB",
        "aclnnC",
        "strange.h",
    ]
