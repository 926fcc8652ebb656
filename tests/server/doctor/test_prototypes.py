"""What the doctor says of headers that differ from the declared operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from npucall.declare.catalogue import Catalogue
from npucall.operators.l1_loss_backward import l1_loss_backward
from npucall_server.doctor.finding import Finding, Verdict
from npucall_server.doctor.prototypes import check_prototypes

from .hosts import faults, warnings

L1 = (
    "const aclTensor *gradOutput, const aclTensor *self, const aclTensor *target, "
    "int64_t reduction, aclTensor *gradInput"
)
CATALOGUE = Catalogue([l1_loss_backward])


def check(folder: Path, parameters: str) -> list[Finding]:
    behind = "uint64_t *workspaceSize, aclOpExecutor **executor"
    text = f"aclnnStatus aclnnL1LossBackwardGetWorkspaceSize({parameters}, {behind});\n"
    (folder / "aclnn_l1_loss_backward.h").write_text(text)
    return check_prototypes([folder], CATALOGUE)


def test_a_header_that_agrees_is_well(tmp_path: Path) -> None:
    (finding,) = check(tmp_path, L1)
    assert finding.found == (
        "1 of 1 declared operators are in the headers, each with the same types, order and names"
    )


@pytest.mark.parametrize(
    ("old", "new", "parameter"),
    [
        ("int64_t reduction", "int32_t reduction", "parameter 4"),
        ("const aclTensor *target, ", "", "parameter 3"),
        ("aclTensor *gradInput", "aclTensor *gradInput, bool fast", "parameter 6"),
        ("const aclTensor *self", "const aclTensorList *self", "parameter 2"),
    ],
)
def test_another_type_is_a_fault(tmp_path: Path, old: str, new: str, parameter: str) -> None:
    (found,) = faults(check(tmp_path, L1.replace(old, new)))
    assert found.startswith(f"aclnnL1LossBackward: {parameter}: expected ")


def test_tensors_that_changed_places_are_a_warning(tmp_path: Path) -> None:
    swapped = L1.replace("target", "x").replace("self", "target").replace("x", "self")
    (found,) = warnings(check(tmp_path, swapped))
    assert (
        "parameter 2: expected const aclTensor* self, the header has const aclTensor* target"
        in (found)
    )


def test_another_const_is_the_same_call(tmp_path: Path) -> None:
    findings = check(tmp_path, L1.replace("aclTensor *gradInput", "const aclTensor *gradInput"))
    assert {finding.verdict for finding in findings} == {Verdict.OK}
    assert "the same call in C" in findings[1].found


def test_an_operator_that_no_header_has_is_named(tmp_path: Path) -> None:
    (tmp_path / "aclnn_other.h").write_text("aclnnStatus aclnnOtherGetWorkspaceSize(int a, int b);")
    (finding,) = check_prototypes([tmp_path], CATALOGUE)
    assert finding.verdict is Verdict.OK
    assert finding.found.endswith("not there: aclnnL1LossBackward")


def test_the_first_folder_that_has_an_operator_counts(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    check(tmp_path / "second", "int64_t self")
    check(tmp_path / "first", L1)
    folders = [tmp_path / "first", tmp_path / "second"]
    assert faults(check_prototypes(folders, CATALOGUE)) == []


def test_no_headers_are_a_warning(tmp_path: Path) -> None:
    assert warnings(check_prototypes([tmp_path])) == [
        f"there are no headers of operators in {tmp_path}, to compare the declared operators with"
    ]
    assert warnings(check_prototypes([])) == [
        "there are no headers of operators, to compare the declared operators with"
    ]
