"""What a caller asks for, without data, and the names of its tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from npucall.declare.declaration import Operator
from npucall.declare.parameters import Value
from npucall.tensors import TensorSpec

Argument: TypeAlias = "TensorSpec | tuple[TensorSpec, ...] | Value | None"
"""What a call gives for a parameter: tensors, the value of an attribute, or a null pointer."""


@dataclass(frozen=True)
class Call:
    """What a caller asks for, without data. ``arguments`` has only what the call mentions."""

    operator: Operator[Any, Any]
    arguments: Mapping[str, Argument]
    stored: tuple[str, ...] = ()
    """The tensors whose storage follows the call, in order; ``element`` names those of lists."""


def element(name: str, index: int) -> str:
    """The name of one tensor of a list."""
    return f"{name}[{index}]"


def parameter_of(place: str) -> str:
    """The parameter of a tensor: itself, or the list that it is a member of."""
    return place.partition("[")[0]


def tensors_of(name: str, given: Any) -> Iterator[tuple[str, TensorSpec]]:
    """The tensors that a call gives for a parameter, those of a list by ``element``."""
    if isinstance(given, tuple):
        members = enumerate(given)
        yield from ((element(name, index), spec) for index, spec in members if spec is not None)
    elif given is not None:
        yield name, given
