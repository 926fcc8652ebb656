"""What a formula works on: elements, complete rows, or everything at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Elementwise:
    """The formula works element by element on ``space``, a shape that the rules found.

    ``sum_to`` names an input: results are summed over the axes along which it was stretched.
    ``widen=False``: the formula gets the kernel dtype itself, where a kernel rounds every step;
    otherwise float32.
    """

    space: str
    sum_to: str | None = None
    widen: bool = True


@dataclass(frozen=True)
class Rows:
    """The formula works on complete rows along the attribute ``dim``: its arrays' last axis."""

    dim: str
    widen: bool = True


@dataclass(frozen=True)
class AtOnce:
    """The formula gets all of every array, and may answer a tuple of several."""

    widen: bool = True


Over: TypeAlias = Elementwise | Rows | AtOnce
elementwise, rows, at_once = Elementwise, Rows, AtOnce
