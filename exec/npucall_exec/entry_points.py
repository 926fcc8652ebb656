"""The C++ of operators' entry points: each packs its arguments and calls the runtime."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Attribute, Output, c_name

# The member of sim::Kind, and that of sim::Argument which holds the value, by C type.
KINDS = {
    "aclTensor": ("Tensor", "handle"),
    "aclTensorList": ("TensorList", "handle"),
    "aclScalar": ("Scalar", "handle"),
    "aclScalarList": ("ScalarList", "handle"),
    "aclIntArray": ("IntArray", "handle"),
    "aclFloatArray": ("FloatArray", "handle"),
    "aclBoolArray": ("BoolArray", "handle"),
    "int8_t": ("Integer", "integer"),
    "int": ("Integer", "integer"),
    "int32_t": ("Integer", "integer"),
    "int64_t": ("Integer", "integer"),
    "uint64_t": ("Integer", "integer"),
    "float": ("Real", "real"),
    "double": ("Real", "real"),
    "bool": ("Boolean", "integer"),
    "aclDataType": ("DataType", "integer"),
    "char": ("Text", "text"),
}
_MEMBERS = {"handle": "nullptr", "integer": "0", "real": "0", "text": "nullptr"}


@dataclass(frozen=True)
class CParameter:
    """One C parameter, its type spelled as ``const aclTensor*``."""

    name: str
    c_type: str
    optional: bool
    output: bool

    @property
    def base_type(self) -> str:
        """The type without const and pointer: ``aclTensor``."""
        return self.c_type.removeprefix("const ").removesuffix("*")


def parameters_of(operator: Operator[Any, Any]) -> list[CParameter]:
    """The C parameters of a declared operator before workspace size and executor."""
    return [
        CParameter(
            c_name(p),
            p.c_type,
            optional=isinstance(p, Attribute) or getattr(p, "optional", False),
            output=isinstance(p, Output),
        )
        for p in operator.parameters
    ]


def declared(parameters: Iterable[CParameter]) -> str:
    """These parameters as C spells them."""
    return ", ".join(f"{p.c_type} {p.name}" for p in parameters)


def entry_point(name: str, parameters: Iterable[CParameter], entry: str) -> str:
    """Phase one and two of an operator; ``entry``: the rest of its ``sim::OperatorEntry``."""
    own = list(parameters)
    packed = "".join(f"        {_argument(p)},\n" for p in own)
    return f"""\
static const sim::OperatorEntry entry_of_{name} = {{"{name}", {entry}}};

SIM_API aclnnStatus {name}GetWorkspaceSize({declared(own)}, uint64_t *workspaceSize,
                                           aclOpExecutor **executor) {{
    const sim::Argument arguments[] = {{
{packed}    }};
    return sim::phase_one(entry_of_{name}, arguments, {len(own)},
                          workspaceSize, reinterpret_cast<void **>(executor));
}}

SIM_API aclnnStatus {name}(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                           aclrtStream stream) {{
    return sim::phase_two(entry_of_{name}, workspace, workspaceSize, executor, stream);
}}
"""


def _argument(parameter: CParameter) -> str:
    kind, member = KINDS[parameter.base_type]
    value = parameter.name
    if member == "integer":
        value = f"static_cast<int64_t>({value})"
    members = ", ".join((_MEMBERS | {member: value}).values())
    flags = f"{str(parameter.optional).lower()}, {str(parameter.output).lower()}"
    return f'{{"{parameter.name}", sim::Kind::{kind}, {flags}, {members}}}'
