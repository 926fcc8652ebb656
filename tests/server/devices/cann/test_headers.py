"""What folders of headers come to: operators with their parameters, and what is left out."""

from pathlib import Path
from typing import Any

import pytest
from tests.simulator.install import install_headers
from tests.simulator.prototypes import GENERATIONS, read_prototypes
from tests.simulator.tree import Generation

from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall_server.devices.cann.headers import Excluded, Headers, headers_in, read

BEHIND = "uint64_t *workspaceSize, aclOpExecutor **executor"
PHASE_TWO = "void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream"
RELU = "const aclTensor *self, const aclTensor *out"
NOT_SERVED = {"aclnnAllGatherMatmul", "aclnnNonzero", "aclnnNonMaxSuppression"}
HELPERS = {"aclnnTransQuantParam", "aclnnCalculateConvolutionWeightSize",
           "aclnnCalculateMatmulWeightSize", "aclnnCalculateMatmulWeightSizeV2"}  # fmt: skip


def phase_one(name: str, parameters: str = RELU) -> str:
    return f"aclnnStatus {name}GetWorkspaceSize({parameters}, {BEHIND});\n"


def phase_two(name: str, parameters: str = PHASE_TWO) -> str:
    return f"aclnnStatus {name}({parameters});\n"


def both(name: str, parameters: str = RELU) -> str:
    return phase_one(name, parameters) + phase_two(name)


def folder_of(path: Path, **texts: str) -> Path:
    """A folder of headers; ``level2__x`` is a header in its folder ``level2``."""
    for name, text in texts.items():
        header = path / f"{name.replace('__', '/')}.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_bytes(text.encode(errors="surrogateescape"))
    return path


def test_parameters_keep_names_types_order_and_roles(tmp_path: Path) -> None:
    text = both(
        "aclnnX",
        "const aclTensor *grad_output, aclTensor *stateRef, aclIntArray *lambda, const bool from, "
        "const aclTensorList *xs, char *mode, aclTensor *out",
    )
    operator = read([folder_of(tmp_path, aclnn_x=text)]).operators["aclnnX"]
    assert operator.parameters == (
        Input("grad_output", "", optional=True, c_name="grad_output"),
        Output("stateRef", "", in_place=True, c_name="stateRef"),
        Attribute("lambda", Kind.INT_ARRAY, "", const=False, c_name="lambda"),
        Attribute("from", Kind.BOOL, "", const=True, c_name="from"),
        Input("xs", "", optional=True, many=True, c_name="xs"),
        Attribute("mode", Kind.STRING, "", const=False, c_name="mode"),
        Output("out", "", c_name="out"),
    )


def test_an_operator_is_known_by_its_prototype_alone_and_names_its_header(tmp_path: Path) -> None:
    (operator,) = read([folder_of(tmp_path, aclnn_relu=both("aclnnRelu"))]).operators.values()
    assert (operator.reference, operator.source) == (False, "aclnn_relu.h")
    assert operator.prototype == (
        "aclnnStatus aclnnReluGetWorkspaceSize(const aclTensor* self, const aclTensor* out, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


CONST_STREAM = PHASE_TWO.replace("aclrtStream", "const aclrtStream")
SERVED: list[tuple[dict[str, str], dict[str, str]]] = [
    # both phases in two headers of a folder
    ({"a": phase_two("aclnnRelu"), "b": phase_one("aclnnRelu")}, {"aclnnRelu": "b.h"}),
    # a const stream of the second phase
    ({"a": phase_one("aclnnRelu") + phase_two("aclnnRelu", CONST_STREAM)}, {"aclnnRelu": "a.h"}),
    # by name, whatever the order of headers
    ({"a": both("aclnnBV2") + both("aclnnB"), "b": both("aclStft"), "c": both("aclnnA")},
     {"aclStft": "b.h", "aclnnA": "c.h", "aclnnB": "a.h", "aclnnBV2": "a.h"}),
    # behind bytes that are not UTF-8
    ({"a": "// \udcff\udcfe\0\n" + both("aclnnRelu")}, {"aclnnRelu": "a.h"}),
    # groups that are no text, and do not communicate
    *(({"a": both("aclnnX", f"{RELU}, {group}")}, {"aclnnX": "a.h"})
      for group in ("const char *mode", "int64_t group", "aclTensor *groupList")),
]  # fmt: skip


def test_operators_are_found_in_any_headers_and_come_by_name(tmp_path: Path) -> None:
    found = []
    for number, (texts, _) in enumerate(SERVED):
        operators = read([folder_of(tmp_path / str(number), **texts)]).operators
        found.append([(name, operator.source) for name, operator in operators.items()])
    assert found == [list(expected.items()) for _, expected in SERVED]


def test_headers_and_folders_without_functions_hold_nothing(tmp_path: Path) -> None:
    folder_of(tmp_path, aclnn_math='#include "aclnn_add.h"\n', aclnn_util="#define ACLNN_API\n")
    assert read([tmp_path, tmp_path / "absent"]) == Headers({}, [])


def test_headers_of_level2_are_read_behind_those_of_the_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, level2__b="", c="", a="")
    found = [str(path.relative_to(tmp_path)) for path in headers_in(tmp_path)]
    assert found == ["a.h", "c.h", "level2/b.h"]


def test_copies_in_level2_count_once_and_what_differs_is_left_out_with_the_reason(
    tmp_path: Path,
) -> None:
    text, other = both("aclnnRelu"), phase_one("aclnnRelu", "const aclTensor *self, aclTensor *out")
    folder_of(tmp_path, relu=text, level2__relu=text, level2__iou=both("aclnnIou"))
    headers = read([tmp_path])
    assert (list(headers.operators), headers.excluded) == (["aclnnIou", "aclnnRelu"], [])
    headers = read([folder_of(tmp_path, level2__relu_2=other)])
    reason = "declared otherwise in relu.h, which counts"
    assert headers.operators["aclnnRelu"].source == "relu.h"
    assert headers.excluded == [Excluded("aclnnReluGetWorkspaceSize", reason, "relu_2.h")]


def test_the_first_folder_decides_about_an_operator(tmp_path: Path) -> None:
    custom = folder_of(tmp_path / "custom", custom=both("aclnnRelu", f"{RELU}, double factor"))
    own = folder_of(tmp_path / "own", relu=both("aclnnRelu"), gelu=both("aclnnGelu"))
    assert [o.source for o in read([custom, own]).operators.values()] == ["gelu.h", "custom.h"]
    assert [o.source for o in read([own, custom]).operators.values()] == ["gelu.h", "relu.h"]


def test_what_the_first_folder_declares_by_half_no_other_completes(tmp_path: Path) -> None:
    custom = folder_of(tmp_path / "custom", custom=phase_one("aclnnRelu"))
    headers = read([custom, folder_of(tmp_path / "own", relu=both("aclnnRelu"))])
    assert not headers.operators
    assert headers.excluded == [Excluded("aclnnRelu", "its second phase is missing", "custom.h")]


@pytest.mark.parametrize("release", GENERATIONS)
def test_of_an_installation_every_prototype_that_can_be_served_is_that_of_the_documents(
    tmp_path: Path, release: str
) -> None:
    tree, prototypes = Generation(tmp_path), read_prototypes()
    install_headers(release, tree, prototypes)
    headers = read([tree.include / "aclnnop"])
    declared = {
        p.name: (p.header, [(each.c_type, each.name, each.output) for each in p.parameters])
        for p in prototypes
        if release in p.releases and p.name not in NOT_SERVED
    }
    assert declared == {
        name: (o.source, [(p.c_type, p.name, isinstance(p, Output)) for p in o.parameters])
        for name, o in headers.operators.items()
    }
    assert list(headers.operators) == sorted(declared)
    excluded = {left_out.name for left_out in headers.excluded}
    assert excluded - HELPERS == NOT_SERVED
    assert "aclnnTransQuantParam" in excluded


# --- What is left out, each with its reason -------------------------------------------------------


def of_x(more: str) -> str:
    return both("aclnnX", f"{RELU}, {more}")


NAMELESS = "expected parameters of a type and a name, found"
LEFT_OUT = [
    ("aclnnAllGatherMatmul", both("aclnnAllGatherMatmul", f"{RELU}, const char *group"),
     "communicates between devices: group"),
    ("aclnnX", of_x("char *groupEp, const char *groupTp"),
     "communicates between devices: groupEp, groupTp"),
    ("aclnnX", of_x("char *hcclComm"), "communicates between devices: hcclComm"),
    ("aclnnTransQuantParam", phase_two("aclnnTransQuantParam", "const float *scale"),
     "a helper without executor"),
    ("aclnnX", phase_two("aclnnX"), "its first phase is missing"),
    ("aclnnX", phase_one("aclnnX"), "its second phase is missing"),
    ("aclnnX", phase_one("aclnnX") + phase_two("aclnnX", "void *workspace"),
     "its second phase does not take void*, uint64_t, aclOpExecutor*, aclrtStream"),
    ("aclnnX", f"aclnnStatus aclnnXGetWorkspaceSize({RELU});{phase_two('aclnnX')}",
     "its first phase does not end with uint64_t*, aclOpExecutor**"),
    ("aclnnX", of_x("uint32_t seed"), "seed: expected a type of an attribute, found uint32_t"),
    ("aclnnX", of_x("aclTensor **all"), "all: expected a type of an attribute, found aclTensor**"),
    ("aclnnX", of_x("int64_t dim = 0"), f"{NAMELESS} 'int64_t dim = 0'"),
    ("aclnnX", of_x("x " * 50), f"{NAMELESS} '{'x ' * 30}'"),
    ("aclnnX", of_x("int64_t self"), "two of its parameters have the same name"),
    *((name, both(name), "the shapes of its outputs depend on the data")
      for name in ("aclnnNonzero", "aclnnNonzeroV2", "aclnnNonZero", "aclnnUnique2",
                   "aclnnUniqueConsecutive", "aclnnMaskedSelect", "aclnnNonMaxSuppression")),
]  # fmt: skip


def test_what_cannot_be_served_is_left_out_with_the_reason(tmp_path: Path) -> None:
    wrong: list[Any] = []
    for number, (name, text, reason) in enumerate(LEFT_OUT):
        folder = folder_of(tmp_path / str(number), aclnn_x=text, aclnn_relu=both("aclnnRelu"))
        headers = read([folder])
        if headers.excluded != [Excluded(name, reason, "aclnn_x.h")]:
            wrong.append((reason, headers.excluded))
        if list(headers.operators) != ["aclnnRelu"]:
            wrong.append((reason, list(headers.operators)))
    assert wrong == []


def test_what_cannot_be_read_is_reported_by_name_and_the_others_are_read(tmp_path: Path) -> None:
    texts = {"a": phase_two("aclnnC") + phase_two("aclnnA"), "b": phase_two("aclnnB")}
    folder_of(tmp_path, relu=both("aclnnRelu"), **texts)
    (tmp_path / "strange.h").mkdir()
    # A file for the system that fails when read, for root too.
    (tmp_path / "bad.h").symlink_to("/proc/self/mem")
    headers = read([tmp_path])
    assert list(headers.operators) == ["aclnnRelu"]
    assert [(left.name, left.reason) for left in headers.excluded] == [
        *((name, "its first phase is missing") for name in ("aclnnA", "aclnnB", "aclnnC")),
        ("bad.h", "cannot be read: Input/output error"),
        ("strange.h", "not a file"),
    ]
