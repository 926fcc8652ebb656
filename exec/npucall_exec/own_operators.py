"""Operators of a user: read from the C headers that declare them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from npucall_exec.entry_points import KINDS, CParameter

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_PHASE_ONE = re.compile(r"\b(acl\w+)GetWorkspaceSize\s*\(([^()]*)\)\s*;")
_PARAMETER = re.compile(r"(const )?(\w+)( ?\*)? ?(\w+)")
_BEHIND = ("uint64_t*", "aclOpExecutor**")


def operators_in(folder: Path) -> dict[str, Sequence[CParameter]]:
    """The operators that the headers in a folder declare, by name. Raises ValueError."""
    texts = {path: path.read_text(errors="replace") for path in sorted(folder.rglob("*.h"))}
    found = {
        name: _parameters(name, parameters, path)
        for path, text in texts.items()
        for name, parameters in _PHASE_ONE.findall(_COMMENT.sub(" ", text))
    }
    if not found:
        raise ValueError(f"headers: expected headers of operators in {folder}, found none")
    return found


def _parameters(name: str, text: str, path: Path) -> Sequence[CParameter]:
    *own, size, executor = [" ".join(each.split()) for each in f",,{text}".split(",")][1:]
    behind = tuple(re.sub(r" ?(\*+) ?\w*$", r"\1", each) for each in (size, executor))
    if behind != _BEHIND:
        raise ValueError(f"headers: {name} in {path}: expected {', '.join(_BEHIND)} at the end")
    return [_parameter(name, each, path) for each in own if each]


def _parameter(name: str, text: str, path: Path) -> CParameter:
    match = _PARAMETER.fullmatch(text)
    if match is None or match[2] not in KINDS:
        raise ValueError(f"headers: {name} in {path}: expected a type of aclnn, found {text!r}")
    const, base, star, spelled = match.groups(default="")
    is_output = not const and base in ("aclTensor", "aclTensorList")
    return CParameter(spelled, f"{const}{base}{star.strip()}", optional=True, output=is_output)
