"""The prototypes: that they are read completely, and that npucall's declarations agree."""

import re

from npucall.declare.parameters import Input, Output, c_name
from npucall.operators import CATALOGUE

from .prototypes import FILES, Prototype, read_prototypes

PROTOTYPES = read_prototypes()
BUILTIN = {p.name: p for p in PROTOTYPES if p.library != "cust"}
C_TYPES = {
    "const aclTensorList*", "aclTensorList*", "const aclScalar*", "const aclScalarList*",
    "const aclIntArray*", "aclIntArray*", "const aclFloatArray*", "aclFloatArray*",
    "const aclBoolArray*", "int8_t", "int", "int32_t", "int64_t", "uint64_t", "bool", "float",
    "double", "aclDataType", "const aclDataType", "char*", "const char*",
}  # fmt: skip
"""The types of the headers."""


def signature(prototype: Prototype) -> str:
    own = [f"{p.c_type} {p.name}" for p in prototype.parameters]
    listed = ", ".join([*own, "uint64_t* workspaceSize", "aclOpExecutor** executor"])
    return f"aclnnStatus {prototype.name}GetWorkspaceSize({listed});"


def test_every_operator_of_the_files_is_read() -> None:
    text = "".join(path.read_text() for path in FILES)
    written = re.findall(r"^SIM_OPERATOR\((\w+)", text, re.MULTILINE)
    assert [prototype.name for prototype in PROTOTYPES] == written
    assert len({(p.name, p.library == "cust") for p in PROTOTYPES}) == len(PROTOTYPES)


def test_a_declared_operator_has_the_prototype_of_the_documents() -> None:
    """Its outputs too, and the tensors that may be null."""
    wrong = []
    for operator in CATALOGUE:
        prototype = BUILTIN[operator.name]
        written = [c_name(p) for p in operator.parameters if isinstance(p, Output)]
        optional = [c_name(p) for p in operator.parameters if isinstance(p, Input) and p.optional]
        tensors = [p for p in prototype.parameters if p.base_type == "aclTensor" and not p.output]
        if (
            operator.prototype != signature(prototype)
            or written != [p.name for p in prototype.parameters if p.output]
            or optional != [p.name for p in tensors if p.optional]
        ):
            wrong.append(operator.title)
    assert wrong == []


def test_some_operator_has_a_parameter_of_each_type_of_the_headers() -> None:
    assert {p.c_type for prototype in PROTOTYPES for p in prototype.parameters} >= C_TYPES
    assert BUILTIN["aclnnKlDivTargetBackward"].releases == ("9.x",)
