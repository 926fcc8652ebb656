"""Writes the C++ of the operators' entry points: each packs its arguments and calls the runtime."""

from collections.abc import Iterable

from .prototypes import FILES, Parameter, Prototype

# The member of sim::Kind, and that of sim::Argument which holds the value, by C type.
_KINDS = {
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
# The functions of src/checks.h, by operator.
_CHECKS = {
    "aclnnRsub": "check_broadcast",
    "aclnnMaximum": "check_broadcast",
    "aclnnInplaceAdd": "check_broadcast_into_first",
    "aclnnInplaceCopy": "check_broadcast_into_first",
    "aclnnMm": "check_mm",
    "aclnnCumsum": "check_cumsum",
    "aclnnVendorScale": "check_same_shape",
}

# CANN's own libraries may need what only appears later: RTLD_NOW does not open them.
_UNDEFINED = """\
extern "C" void npucall_sim_nobody_defines();
SIM_API void npucall_sim_needs_what_nobody_defines() { npucall_sim_nobody_defines(); }
"""


def entry_points(operators: Iterable[Prototype]) -> str:
    """A C++ file with phase one and two of each operator."""
    headers = ("checks.h", "operator_entry.h", *(path.name for path in FILES))
    includes = "".join(f'#include "{header}"\n' for header in headers)
    parts = [f"// Generated from prototypes*.h.\n{includes}", _UNDEFINED]
    parts += [_entry_point(operator) for operator in operators]
    return "\n".join(parts)


def _entry_point(operator: Prototype) -> str:
    package = "custom" if operator.library == "cust" else "builtin"
    check = f"sim::{_CHECKS[operator.name]}" if operator.name in _CHECKS else "nullptr"
    workspace = 0 if "no-workspace" in operator.words else 1
    single = "true" if "generated" in operator.words else "false"
    most = 25 if "any-rank" in operator.words else 8
    declared = ", ".join(f"{p.c_type} {p.name}" for p in operator.parameters)
    packed = "".join(f"        {_argument(p)},\n" for p in operator.parameters)
    return f"""\
static const sim::OperatorEntry entry_of_{operator.name} = {{
    "{operator.name}", "{package}", {check}, {workspace}, {single}, {most}}};

aclnnStatus {operator.name}GetWorkspaceSize({declared}, uint64_t *workspaceSize,
                                            aclOpExecutor **executor) {{
    const sim::Argument arguments[] = {{
{packed}    }};
    return sim::phase_one(entry_of_{operator.name}, arguments, {len(operator.parameters)},
                          workspaceSize, reinterpret_cast<void **>(executor));
}}

aclnnStatus {operator.name}(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                            aclrtStream stream) {{
    return sim::phase_two(entry_of_{operator.name}, workspace, workspaceSize, executor, stream);
}}
"""


def _argument(parameter: Parameter) -> str:
    kind, member = _KINDS[parameter.base_type]
    value = parameter.name
    if member == "integer":
        value = f"static_cast<int64_t>({value})"
    members = ", ".join((_MEMBERS | {member: value}).values())
    flags = f"{str(parameter.optional).lower()}, {str(parameter.output).lower()}"
    names = f'"{parameter.name}", "{parameter.c_type}"'
    return f"{{{names}, sim::Kind::{kind}, {flags}, {members}}}"
