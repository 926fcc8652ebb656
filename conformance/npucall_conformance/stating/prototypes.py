"""The C parameter list of an operator's first phase, and the parameters' names in a call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Parameter:
    """One parameter of the list."""

    name: str
    """The name in a call: ``grad_output``."""
    c_name: str
    """The name in C: ``gradOutput``."""
    c_type: str
    """``const aclTensor*``."""


def parameters_of(prototype: str, renamed: Mapping[str, str]) -> tuple[Parameter, ...]:
    """Reads the parameters from C's list; ``renamed`` has unusual names in calls by C's names."""
    found = []
    for declared in prototype.split(", "):
        c_type, _, c_name = declared.rpartition(" ")
        found.append(Parameter(renamed.get(c_name) or _in_calls(c_name), c_name, c_type))
    return tuple(found)


def _in_calls(c_name: str) -> str:
    """``gradOutput`` becomes grad_output, ``weightOptional`` weight."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", c_name.removesuffix("Optional")).lower()
