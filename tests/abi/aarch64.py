"""Where a C function of Linux on aarch64 finds its parameters and leaves its result.

By the procedure call standard (AAPCS64), for what CANN's interface has: integers, enumerations,
bools and pointers in x0 to x7, floats and doubles in v0 to v7, and what is left on the stack, eight
bytes each. So libffi passes what ctypes declares.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_REGISTERS = 8
_SLOT = 8
_FLOATING = (ctypes.c_float, ctypes.c_double)


class Place(NamedTuple):
    """A register (``x0``, ``v0``) or a place on the stack (``sp+8``), and how many bytes count."""

    where: str
    size: int


class Signature(NamedTuple):
    """A C function as ctypes declares it."""

    result: Any
    parameters: tuple[Any, ...]


class Places(NamedTuple):
    """Where a function leaves its result (None: it has none), and finds each parameter."""

    result: Place | None
    parameters: tuple[Place, ...]


def places(signature: Signature) -> Places:
    """The places by the standard; a type that it does not treat so is a TypeError."""
    row = _Row()
    parameters = tuple(map(row.place, signature.parameters))
    result = None if signature.result is None else _Row().place(signature.result)
    return Places(result, parameters)


@dataclass
class _Row:
    """The parameters of a call, one after the other."""

    used: dict[str, int] = field(default_factory=lambda: {"x": 0, "v": 0})
    on_stack: int = 0

    def place(self, kind: Any) -> Place:
        if issubclass(kind, (ctypes.Structure, ctypes.Union, ctypes.Array)):
            raise TypeError(f"expected a number or a pointer, found {kind.__name__}")
        file, size = "v" if kind in _FLOATING else "x", ctypes.sizeof(kind)
        if self.used[file] < _REGISTERS:
            self.used[file] += 1
            return Place(f"{file}{self.used[file] - 1}", size)
        self.on_stack += 1
        return Place(f"sp+{(self.on_stack - 1) * _SLOT}", size)


def differences(ours: dict[str, Signature], theirs: dict[str, Places]) -> dict[str, str]:
    """Functions whose places differ, each with the first difference; names of both are the same."""
    found = {}
    for name, signature in ours.items():
        if (difference := _difference(places(signature), theirs[name])) is not None:
            found[name] = difference
    return found


def _difference(ours: Places, theirs: Places) -> str | None:
    if ours.result != theirs.result:
        return f"result: expected {theirs.result}, found {ours.result}"
    pairs: Sequence[tuple[Place, Place]] = list(
        zip(ours.parameters, theirs.parameters, strict=False)
    )
    for number, (own, their) in enumerate(pairs):
        if own != their:
            return f"parameter {number}: expected {their}, found {own}"
    if len(ours.parameters) != len(theirs.parameters):
        return f"expected {len(theirs.parameters)} parameters, found {len(ours.parameters)}"
    return None
