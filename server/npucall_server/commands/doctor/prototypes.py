"""The declared operators, compared with the headers of the installed CANN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from npucall.declare.catalogue import Catalogue
from npucall.declare.declaration import Operator
from npucall.declare.parameters import c_name
from npucall.operators import CATALOGUE
from npucall_server.commands.doctor.finding import Finding, Verdict, fault, ok, warning
from npucall_server.devices.cann.header_grammar import Declared, Found
from npucall_server.devices.cann.headers import PHASE_ONE, functions_in

_BEHIND_ALL = 2
"""How many parameters follow an operator's own: size of the workspace, executor."""
_NONE = Declared("none", "")


def check_prototypes(folders: Sequence[Path], catalogue: Catalogue = CATALOGUE) -> list[Finding]:
    """Compares types, order and names of parameters with the headers in ``folders``."""
    functions = functions_in(folders, [])
    installed = {
        name.removesuffix(PHASE_ONE): each
        for name, each in functions.items()
        if name.endswith(PHASE_ONE)
    }
    if not installed:
        where = f" in {', '.join(map(str, folders))}" if folders else ""
        return [
            warning(
                f"there are no headers of operators{where}, to compare the declared operators with",
                "a toolkit has them in include/aclnnop. Without them, only the declared "
                "operators work",
            )
        ]
    declared = {operator.name: operator for operator in catalogue}
    found = [name for name in declared if name in installed]
    findings = [f for name in found for f in _compare(declared[name], installed[name])]
    absent = sorted(declared.keys() - installed.keys())
    said = f"{len(found)} of {len(declared)} declared operators are in the headers"
    if all(finding.verdict is Verdict.OK for finding in findings):
        said += ", each with the same types, order and names"
    return [ok(f"{said}; not there: {', '.join(absent)}" if absent else said), *findings]


def _compare(operator: Operator[Any, Any], header: Found) -> Iterator[Finding]:
    """The worst difference; nothing if there is none. Const makes no difference to a call."""
    ours = [Declared(parameter.c_type, c_name(parameter)) for parameter in operator.parameters]
    pairs = list(zip_longest(ours, header.parameters[:-_BEHIND_ALL], fillvalue=_NONE))
    differences = [
        (number, one, other) for number, (one, other) in enumerate(pairs, 1) if one != other
    ]
    lines = "; ".join(
        f"parameter {number}: expected {_shown(one)}, the header has {_shown(other)}"
        for number, one, other in differences
    )
    said = f"{operator.name}: {lines}"
    if any(_passed(one) != _passed(other) for _, one, other in differences):
        yield fault(
            f"{said} ({header.source})",
            "do not run this operator: it would get wrong arguments. Report the header's lines",
        )
    elif any(one.name != other.name for _, one, other in differences):
        yield warning(
            f"{said} ({header.source})",
            "a new name is harmless, but two tensors that changed places are not: compare the "
            "header with docs/operators.md",
        )
    elif differences:
        yield ok(f"{said}, the same call in C ({header.source})")


def _passed(declared: Declared) -> str:
    return declared.c_type.removeprefix("const ")


def _shown(declared: Declared) -> str:
    return f"{declared.c_type} {declared.name}".strip()
