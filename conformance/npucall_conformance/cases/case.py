"""A case: it describes one call, and its id finds the call again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import DType
from npucall.tensors import Shape
from npucall_conformance.cases.arrangements import Arrangement
from npucall_conformance.stating.parts import Contradiction, Invalid, Setup
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.written import WrittenCall

FUZZ = "fuzz"
"""The block of drawn calls. Any text of an id finds a call again, whether a run has it or not."""
BLOCKS = {
    "listing": "what the server lists of the operator: products, dtypes, parameters, rules",
    "products": "dtypes that the product does not take, and operators that it has not: refused",
    "defaults": "attributes that are left out",
    "grid": "all dtypes, attributes and usual shapes",
    "broadcast": "rows, columns, single elements, and what is stretched on both sides",
    "mixed": "inputs of several dtypes, and outputs of another",
    "layout": "transposed, with steps, offsets, gaps and stride 0; bytes between elements stay",
    "empty": "no elements, in every position",
    "rank": "from no dimension to as many as there may be",
    "edge": "zeros, infinities, NaN, ends of the range, and what overflows or cancels",
    "written": "results that are written out: complex numbers, integers that wrap around",
    "reduction": "unusual values that attributes may have: beyond 32 bits, axes from the end",
    "invalid": "every row of the error table, alone and two at a time: the first must be found",
    "determinism": "the same call again, alone and at once: the same bits",
    "crowd": "several callers with other operators, shapes and values at once, many times",
    "size": "numbers of elements around the sizes of blocks",
    "large": "beyond one block and one message: strided, stretched, with gaps, many rows alike",
    "paths": "the same call by every way that a call can travel: the same bits; Plan says the same",
    FUZZ: "drawn calls: any shapes, layouts, attributes and special numbers, or several defects",
    "documents": "where published sources contradict each other: with whom the server agrees",
}
"""The purpose of each block, in the order in which the blocks run."""

_REDUCTIONS = ("none", "mean", "sum", "batchmean")
_LISTED = 4
"""For a longer list, an id has this many of its numbers, and says how many more there are."""


class Marks(NamedTuple):
    """Special elements of a tensor; all others are multiplied."""

    numbers: tuple[tuple[int, float], ...] = ()
    """Positions among the elements, which wrap around at the end, and the values there."""
    power: int = 0
    """All others are multiplied by 2 to that power."""
    alike: bool = False
    """All rows are like the first, so that the errors of a sum of them have the same sign."""

    def put(self, drawn: Any) -> Any:
        """The numbers that were drawn, with the special ones among them."""
        found = np.array(drawn, np.float64) * 2.0**self.power
        if self.alike and found.ndim and found.size:
            found[...] = found[(0,) * (found.ndim - 1)]
        flat = found.reshape(-1)
        for place, number in self.numbers if flat.size else ():
            flat[place % flat.size] = number
        return flat.reshape(found.shape)


@dataclass(frozen=True, eq=False)
class Case:
    """One call without its data, which are made from the seed and the id."""

    id: str
    """``aclnnKlDivBackward/grid/f32-mean-4x6-0007``."""
    statement: Statement
    block: str
    dtype: DType
    """Reports count the case under this dtype; tensors may have others."""
    dtypes: Mapping[str, DType]
    """Dtypes of the inputs that are given."""
    shapes: Mapping[str, Shape]
    """Shapes of the inputs that are given, in the operator's order."""
    attributes: Mapping[str, Any]
    outputs: Mapping[str, DType | None] = field(default_factory=dict)
    """Outputs that are given, with their dtypes; None: the dtype that the output has by default."""
    layouts: Mapping[str, Arrangement] = field(default_factory=dict)
    setup: Setup = field(default_factory=Setup)
    defects: tuple[Invalid, ...] = ()
    """The defects of the call; the first must be found."""
    contradiction: Contradiction | None = None
    unsent: tuple[str, ...] = ()
    """Outputs with gaps whose storage is not sent, so that only their elements come back."""
    products: tuple[str, ...] = ()
    """Short SoC names that it is for; empty: all."""
    unnamed: bool = False
    """The call names no variant: it is for servers whose default is the statement's."""
    telling: bool = False
    """It can find more errors than its neighbours, so that quick runs begin with it."""
    written: WrittenCall | None = None
    """The call and its results, if they are written out."""
    marks: Mapping[str, Marks] = field(default_factory=dict)
    """Special numbers among those that are drawn for an input."""
    data: str = ""
    """Cases with the same text here have the same numbers in tensors of the same shape; empty: no
    other case has the same numbers."""


def label(dtype: str, attributes: Mapping[str, Any], shape: Shape | None, note: str) -> str:
    """The readable part of an id."""
    parts = [dtype, *(_named(name, value) for name, value in attributes.items())]
    if shape is not None:
        parts.append("x".join(map(str, shape)) or "scalar")
    return "-".join(filter(None, [*parts, note]))


def _named(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else ""
    if name == "reduction" and isinstance(value, int) and 0 <= value < len(_REDUCTIONS):
        return _REDUCTIONS[value]
    if value is None:
        return f"no_{name}"
    if isinstance(value, Scalar):
        return f"{name}{_clean(value.value)}{value.dtype.short}"
    if isinstance(value, list | tuple) and len(value) > _LISTED:
        return f"{name}{_clean(list(value[:_LISTED]))}_and{len(value) - _LISTED}"
    return _clean(value) if isinstance(value, str) else f"{name}{_clean(value)}"


def _clean(value: Any) -> str:
    return _cleaned(str(value))


@lru_cache(1024)
def _cleaned(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z.]+", "_", text.replace("-", "m")).strip("_")
