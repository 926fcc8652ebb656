"""The headers of an installed CANN, and the operators that they declare.

``read`` makes Operators that have only a C prototype: no rules and no formula
[src:generic-operators]. It gives a reason for everything that it leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npucall.declare.declaration import Operator, prototype_only
from npucall.declare.parameters import Input, Output, Parameter, parameter_of
from npucall_server.devices.cann.header_grammar import Declared, Found, parse
from npucall_server.devices.cann.header_roles import TensorRole, roles_of

__all__ = ["Excluded", "Found", "Headers", "headers_in", "parse", "read"]

PHASE_ONE = "GetWorkspaceSize"
_BEHIND_ALL = ("uint64_t*", "aclOpExecutor**")
_PHASE_TWO = ("void*", "uint64_t", "aclOpExecutor*", "aclrtStream")
_COMMUNICATOR = re.compile(r"group\w*|\w*(?:hccl|hcom)\w*", re.IGNORECASE)
_DEPENDS_ON_DATA = re.compile(r"aclnn(?:Nonzero|NonZero|Unique|MaskedSelect|NonMaxSuppression)\w*")
_LONGEST = 60


@dataclass(frozen=True)
class Excluded:
    """An operator, a function or a file that is left out."""

    name: str
    reason: str
    source: str


@dataclass(frozen=True)
class Headers:
    """The contents of the headers in some folders, by name."""

    operators: Mapping[str, Operator[Any, Any]]
    excluded: list[Excluded]


def headers_in(folder: Path) -> list[Path]:
    """The files of a folder and of its ``level2``, which has copies and a few more headers."""
    return [*sorted(folder.glob("*.h")), *sorted(folder.glob("level2/*.h"))]


def read(folders: Sequence[Path]) -> Headers:
    """The operators of the headers in these folders."""
    excluded: list[Excluded] = []
    functions = functions_in(folders, excluded)
    names = sorted(set(map(_operator_name, functions)))
    verdicts = [_verdict(name, functions) for name in names]
    excluded += (verdict for verdict in verdicts if isinstance(verdict, Excluded))
    return Headers(
        {verdict.name: verdict for verdict in verdicts if isinstance(verdict, Operator)},
        sorted(excluded, key=lambda left_out: (left_out.name, left_out.source)),
    )


def functions_in(folders: Sequence[Path], excluded: list[Excluded]) -> dict[str, Found]:
    """The functions that the headers in these folders declare, by name; adds what is left out.

    If several folders declare an operator, the first one counts, as with libraries that have the
    same symbols. So custom packages come before CANN itself.
    """
    functions: dict[str, Found] = {}
    for folder in folders:
        taken = set(map(_operator_name, functions))
        declared = _functions_of(headers_in(folder), excluded)
        functions |= {n: f for n, f in declared.items() if _operator_name(n) not in taken}
    return functions


def _operator_name(function: str) -> str:
    return function.removesuffix(PHASE_ONE)


def _functions_of(paths: Iterable[Path], excluded: list[Excluded]) -> dict[str, Found]:
    """The functions of some headers. The first declaration counts; others must be the same."""
    functions: dict[str, Found] = {}
    for path in paths:
        for found in _read(path, excluded):
            first = functions.setdefault(found.name, found)
            if first.c_types != found.c_types:
                reason = f"declared otherwise in {first.source}, which counts"
                excluded.append(Excluded(found.name, reason, found.source))
    return functions


def _read(path: Path, excluded: list[Excluded]) -> list[Found]:
    try:
        if path.is_file():
            return parse(path.read_text(encoding="utf-8", errors="replace"), path.name)
        reason = "not a file"
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    excluded.append(Excluded(path.name, reason, path.name))
    return []


def _verdict(name: str, functions: Mapping[str, Found]) -> Operator[Any, Any] | Excluded:
    one, two = functions.get(name + PHASE_ONE), functions.get(name)
    if one is None:
        return _without_phase_one(functions[name])
    own = one.parameters[: -len(_BEHIND_ALL)]
    if reason := _fault_of_phases(one, two) or _fault_of_parameters(name, own):
        return Excluded(name, reason, one.source)
    roles = roles_of(name, {parameter.name: parameter.c_type for parameter in own})
    try:
        parameters = tuple(_parameter(parameter, roles.get(parameter.name)) for parameter in own)
    except ValueError as error:
        return Excluded(name, str(error), one.source)
    return prototype_only(name, parameters, one.source)


def _without_phase_one(found: Found) -> Excluded:
    phase_two = _is_phase_two(found)
    reason = "its first phase is missing" if phase_two else "a helper without executor"
    return Excluded(found.name, reason, found.source)


def _fault_of_phases(one: Found, two: Found | None) -> str:
    if one.c_types[-len(_BEHIND_ALL) :] != _BEHIND_ALL:
        return f"its first phase does not end with {', '.join(_BEHIND_ALL)}"
    if two is None:
        return "its second phase is missing"
    return "" if _is_phase_two(two) else f"its second phase does not take {', '.join(_PHASE_TWO)}"


def _is_phase_two(found: Found) -> bool:
    return tuple(c_type.removeprefix("const ") for c_type in found.c_types) == _PHASE_TWO


def _fault_of_parameters(name: str, own: Sequence[Declared]) -> str:
    if _DEPENDS_ON_DATA.fullmatch(name):
        return "the shapes of its outputs depend on the data"
    unnamed = [parameter.c_type for parameter in own if not parameter.name]
    if unnamed:
        return f"expected parameters of a type and a name, found {unnamed[0][:_LONGEST]!r}"
    if len({parameter.name for parameter in own}) < len(own):
        return "two of its parameters have the same name"
    texts = [parameter.name for parameter in own if parameter.c_type.endswith("char*")]
    groups = ", ".join(filter(_COMMUNICATOR.fullmatch, texts))
    return f"communicates between devices: {groups}" if groups else ""


def _parameter(declared: Declared, role: TensorRole | None) -> Parameter:
    tensor = None if role is None else Input if role is TensorRole.INPUT else Output
    in_place = role is TensorRole.IN_OUT
    return parameter_of(declared.name, declared.c_type, tensor, in_place=in_place)
