"""What folders of headers come to: operators with their parameters, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulator.install import install_headers
from tests.simulator.prototypes import GENERATIONS, Prototype, read_prototypes
from tests.simulator.tree import Generation

from npucall.declare.parameters import Attribute, Input, Kind, Output
from npucall_server.devices.cann.headers import Excluded, Headers, headers_in, read

from .header_folders import PHASE_TWO, RELU, both, folder_of, phase_one, phase_two

PROTOTYPES = read_prototypes()
NOT_SERVED = {"aclnnAllGatherMatmul", "aclnnNonzero", "aclnnNonMaxSuppression"}


def names(headers: Headers) -> list[str]:
    return list(headers.operators)


# --- Operators ------------------------------------------------------------------------------------


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
    operator = read([folder_of(tmp_path, aclnn_relu=both("aclnnRelu", RELU))]).operators[
        "aclnnRelu"
    ]
    assert not operator.reference
    assert operator.source == "aclnn_relu.h"
    assert operator.prototype == (
        "aclnnStatus aclnnReluGetWorkspaceSize(const aclTensor* self, const aclTensor* out, "
        "uint64_t* workspaceSize, aclOpExecutor** executor);"
    )


def test_phases_may_stand_in_two_headers_of_a_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, a=phase_two("aclnnRelu"), b=phase_one("aclnnRelu", RELU))
    assert read([tmp_path]).operators["aclnnRelu"].source == "b.h"


def test_the_stream_of_the_second_phase_may_be_const(tmp_path: Path) -> None:
    second = phase_two("aclnnRelu", PHASE_TWO.replace("aclrtStream", "const aclrtStream"))
    folder = folder_of(tmp_path, aclnn_relu=phase_one("aclnnRelu", RELU) + second)
    assert names(read([folder])) == ["aclnnRelu"]


def test_versions_of_an_operator_are_operators_of_their_own(tmp_path: Path) -> None:
    text = both("aclnnGeluV2", RELU) + both("aclnnGelu", RELU)
    assert names(read([folder_of(tmp_path, gelu=text)])) == ["aclnnGelu", "aclnnGeluV2"]


def test_operators_come_by_name_whatever_the_order_of_headers(tmp_path: Path) -> None:
    folder_of(tmp_path, a=both("aclnnB", RELU), b=both("aclStft", RELU), c=both("aclnnA", RELU))
    assert names(read([tmp_path])) == ["aclStft", "aclnnA", "aclnnB"]


def test_headers_without_functions_hold_nothing(tmp_path: Path) -> None:
    folder_of(tmp_path, aclnn_math='#include "aclnn_add.h"\n', aclnn_util="#define ACLNN_API\n")
    assert read([tmp_path]) == Headers({}, [])


def test_bytes_that_are_not_utf_8_do_not_hide_what_follows(tmp_path: Path) -> None:
    (tmp_path / "aclnn_relu.h").write_bytes(b"// \xff\xfe\x00\n" + both("aclnnRelu", RELU).encode())
    assert names(read([tmp_path])) == ["aclnnRelu"]


# --- Folders --------------------------------------------------------------------------------------


def test_headers_of_level2_are_read_behind_those_of_the_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, level2__b="", c="", a="")
    assert [str(path.relative_to(tmp_path)) for path in headers_in(tmp_path)] == [
        "a.h",
        "c.h",
        "level2/b.h",
    ]


def test_copies_in_level2_count_once(tmp_path: Path) -> None:
    text = both("aclnnRelu", RELU)
    folder = folder_of(tmp_path, relu=text, level2__relu=text, level2__iou=both("aclnnIou", RELU))
    assert names(read([folder])) == ["aclnnIou", "aclnnRelu"]
    assert read([folder]).excluded == []


def test_a_copy_that_differs_is_left_out_with_the_reason(tmp_path: Path) -> None:
    other = phase_one("aclnnRelu", "const aclTensor *self, aclTensor *out")
    headers = read([folder_of(tmp_path, relu=both("aclnnRelu", RELU), level2__relu_2=other)])
    assert headers.operators["aclnnRelu"].source == "relu.h"
    assert headers.excluded == [
        Excluded(
            "aclnnReluGetWorkspaceSize", "declared otherwise in relu.h, which counts", "relu_2.h"
        )
    ]


def test_the_first_folder_decides_about_an_operator(tmp_path: Path) -> None:
    custom = folder_of(tmp_path / "custom", custom=both("aclnnRelu", f"{RELU}, double factor"))
    own = folder_of(tmp_path / "own", relu=both("aclnnRelu", RELU), gelu=both("aclnnGelu", RELU))
    assert [o.source for o in read([custom, own]).operators.values()] == ["gelu.h", "custom.h"]
    assert [o.source for o in read([own, custom]).operators.values()] == ["gelu.h", "relu.h"]


def test_what_the_first_folder_declares_by_half_no_other_completes(tmp_path: Path) -> None:
    custom = folder_of(tmp_path / "custom", custom=phase_one("aclnnRelu", RELU))
    own = folder_of(tmp_path / "own", relu=both("aclnnRelu", RELU))
    headers = read([custom, own])
    assert not headers.operators
    assert headers.excluded == [Excluded("aclnnRelu", "its second phase is missing", "custom.h")]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert read([tmp_path / "absent"]) == Headers({}, [])


# --- A whole installation -------------------------------------------------------------------------


@pytest.fixture(scope="module", params=GENERATIONS)
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[Prototype], Headers]:
    """The prototypes of a release, and its headers as the simulator writes them, read."""
    tree = Generation(tmp_path_factory.mktemp("cann"))
    install_headers(request.param, tree, PROTOTYPES)
    there = [prototype for prototype in PROTOTYPES if request.param in prototype.releases]
    return there, read([tree.include / "aclnnop"])


def test_every_operator_of_an_installation_is_read(
    installed: tuple[list[Prototype], Headers],
) -> None:
    prototypes, headers = installed
    assert names(headers) == sorted({prototype.name for prototype in prototypes} - NOT_SERVED)


def test_of_an_installation_communication_helpers_and_shapes_of_data_are_left_out(
    installed: tuple[list[Prototype], Headers],
) -> None:
    helpers = {"aclnnTransQuantParam", "aclnnCalculateConvolutionWeightSize",
               "aclnnCalculateMatmulWeightSize", "aclnnCalculateMatmulWeightSizeV2"}  # fmt: skip
    excluded = {left_out.name for left_out in installed[1].excluded}
    assert excluded - helpers == NOT_SERVED
    assert "aclnnTransQuantParam" in excluded


def test_every_prototype_of_an_installation_is_that_of_the_documents(
    installed: tuple[list[Prototype], Headers],
) -> None:
    prototypes, headers = installed
    declared = {
        prototype.name: [(p.c_type, p.name, p.output) for p in prototype.parameters]
        for prototype in prototypes
        if prototype.name not in NOT_SERVED
    }
    assert declared == {
        name: [(p.c_type, p.name, isinstance(p, Output)) for p in operator.parameters]
        for name, operator in headers.operators.items()
    }


def test_every_operator_of_an_installation_names_its_header(
    installed: tuple[list[Prototype], Headers],
) -> None:
    prototypes, headers = installed
    sources = {prototype.name: prototype.header for prototype in prototypes}
    assert all(sources[name] == operator.source for name, operator in headers.operators.items())
