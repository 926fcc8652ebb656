"""The declared operators, compared with the headers of the installed CANN."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from operator import eq as equal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from npucall.declare.parameters import c_name
from npucall.operators import CATALOGUE
from npucall_server.commands.doctor.finding import Finding, Verdict, fault, ok, warning
from npucall_server.devices.cann.header_grammar import Declared, Found, parse
from npucall_server.devices.cann.headers import headers_in

if TYPE_CHECKING:
    from npucall.declare.catalogue import Catalogue
    from npucall.declare.declaration import Operator

_PHASE_ONE = "GetWorkspaceSize"
_BEHIND_ALL = 2
"""How many parameters follow an operator's own: size of the workspace, executor."""


def check_prototypes(folders: Sequence[Path], catalogue: Catalogue = CATALOGUE) -> list[Finding]:
    """Compares types, order and names of parameters with the headers in ``folders``."""
    installed = _installed(folders)
    if not installed:
        return [
            warning(
                f"there are no headers of operators{_listed(folders)}, to compare the declared "
                "operators with",
                "a toolkit has them in include/aclnnop. Without them, only the declared "
                "operators work",
            )
        ]
    declared = {operator.name: operator for operator in catalogue}
    found = {name: installed[name] for name in declared if name in installed}
    findings = [f for name in found for f in _compare(declared[name], found[name])]
    absent = sorted(declared.keys() - found.keys())
    said = f"{len(found)} of {len(declared)} declared operators are in the headers"
    others = f"; not there: {', '.join(absent)}" if absent else ""
    differ = any(finding.verdict is not Verdict.OK for finding in findings)
    agree = "" if differ else ", each with the same types, order and names"
    return [ok(f"{said}{agree}{others}"), *findings]


def _listed(folders: Sequence[Path]) -> str:
    return f" in {', '.join(map(str, folders))}" if folders else ""


def _installed(folders: Sequence[Path]) -> dict[str, Found]:
    """The first phases by operator. The first folder that has it counts, as with libraries."""
    phases: dict[str, Found] = {}
    for path in (path for folder in folders for path in headers_in(folder)):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for function in parse(text, str(path)):
            if function.name.endswith(_PHASE_ONE):
                phases.setdefault(function.name.removesuffix(_PHASE_ONE), function)
    return phases


def _compare(operator: Operator[Any, Any], header: Found) -> Iterator[Finding]:
    """The worst difference; nothing if there is none."""
    ours = [Declared(parameter.c_type, c_name(parameter)) for parameter in operator.parameters]
    pairs = list(zip_longest(ours, header.parameters[:-_BEHIND_ALL]))
    if lines := _differences(pairs, _passed_alike):
        yield fault(
            f"{operator.name}: {lines} ({header.source})",
            "do not run this operator: it would get wrong arguments. Report the header's lines",
        )
    elif lines := _differences(pairs, _named_alike):
        yield warning(
            f"{operator.name}: {lines} ({header.source})",
            "a new name is harmless, but two tensors that changed places are not: compare the "
            "header with docs/operators.md",
        )
    elif lines := _differences(pairs, equal):
        yield ok(f"{operator.name}: {lines}, the same call in C ({header.source})")


_Pair = tuple[Declared | None, Declared | None]


def _differences(pairs: Sequence[_Pair], alike: Callable[..., bool]) -> str:
    lines = [
        f"parameter {number}: expected {_shown(ours)}, the header has {_shown(theirs)}"
        for number, (ours, theirs) in enumerate(pairs, start=1)
        if not alike(ours, theirs)
    ]
    return "; ".join(lines)


def _passed_alike(ours: Declared | None, theirs: Declared | None) -> bool:
    """Whether C passes them in the same way: const makes no difference to a call."""
    if ours is None or theirs is None:
        return False
    return ours.c_type.removeprefix("const ") == theirs.c_type.removeprefix("const ")


def _named_alike(ours: Declared, theirs: Declared) -> bool:
    return ours.name == theirs.name


def _shown(declared: Declared | None) -> str:
    return f"{declared.c_type} {declared.name}" if declared else "none"
