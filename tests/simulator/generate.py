"""Writes the C++ of the simulated operators' entry points."""

from collections.abc import Iterable

from npucall_exec.entry_points import entry_point

from .prototypes import FILES, Prototype

# The functions of src/checks.h, by operator.
_CHECKS = {
    "aclnnRsub": "check_broadcast",
    "aclnnMaximum": "check_broadcast",
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
    entry = f'"{package}", {check}, {workspace}, {single}, {most}'
    return entry_point(operator.name, operator.parameters, entry)
