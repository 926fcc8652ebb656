"""The prototypes: that they are read completely, and that npucall's declarations agree."""

from __future__ import annotations

import re
from typing import Any

import pytest

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Input, Output, c_name
from npucall.operators import CATALOGUE

from .prototypes import FILES, Prototype, read_prototypes

PROTOTYPES = read_prototypes()
BUILTIN = {p.name: p for p in PROTOTYPES if p.library != "cust"}
DECLARED = pytest.mark.parametrize("operator", list(CATALOGUE), ids=lambda operator: operator.title)


def signature(prototype: Prototype) -> str:
    own = [f"{p.c_type} {p.name}" for p in prototype.parameters]
    listed = ", ".join([*own, "uint64_t* workspaceSize", "aclOpExecutor** executor"])
    return f"aclnnStatus {prototype.name}GetWorkspaceSize({listed});"


def test_every_operator_of_the_files_is_read() -> None:
    written = [
        name
        for path in FILES
        for name in re.findall(r"^SIM_OPERATOR\((\w+)", path.read_text(), re.MULTILINE)
    ]
    assert [prototype.name for prototype in PROTOTYPES] == written


@DECLARED
def test_a_declared_operator_has_the_prototype_of_the_documents(
    operator: Operator[Any, Any],
) -> None:
    assert operator.prototype == signature(BUILTIN[operator.name])


@DECLARED
def test_a_declared_operator_writes_the_tensors_that_the_documents_call_outputs(
    operator: Operator[Any, Any],
) -> None:
    written = [c_name(p) for p in operator.parameters if isinstance(p, Output)]
    assert written == [p.name for p in BUILTIN[operator.name].parameters if p.output]


@DECLARED
def test_a_declared_operator_takes_null_where_the_documents_say_optional(
    operator: Operator[Any, Any],
) -> None:
    optional = [c_name(p) for p in operator.parameters if isinstance(p, Input) and p.optional]
    prototype = BUILTIN[operator.name]
    tensors = [p for p in prototype.parameters if p.base_type == "aclTensor" and not p.output]
    assert optional == [p.name for p in tensors if p.optional]


@pytest.mark.parametrize(
    "c_type",
    ["const aclTensorList*", "aclTensorList*", "const aclScalar*", "const aclScalarList*",
     "const aclIntArray*", "aclIntArray*", "const aclFloatArray*", "aclFloatArray*",
     "const aclBoolArray*", "int8_t", "int", "int32_t", "int64_t", "uint64_t", "bool", "float",
     "double", "aclDataType", "const aclDataType", "char*", "const char*"],
)  # fmt: skip
def test_some_operator_has_a_parameter_of_each_type_of_the_headers(c_type: str) -> None:
    assert any(p.c_type == c_type for prototype in PROTOTYPES for p in prototype.parameters)


def test_the_release_8_1_lacks_the_gradient_of_the_target() -> None:
    assert BUILTIN["aclnnKlDivTargetBackward"].releases == ("9.x",)
