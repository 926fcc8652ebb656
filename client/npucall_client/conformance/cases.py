"""A case: what makes one call, and the id by which it is found again."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npucall.declare.parameters import Scalar
from npucall.dtypes import DTYPES
from npucall_client.conformance.arrangements import Arrangement
from npucall_client.conformance.statement import Setup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.dtypes import DType
    from npucall.tensors import Shape
    from npucall_client.conformance.statement import Contradiction, Invalid, Statement

BLOCKS = (
    "grid", "broadcast", "mixed", "layout", "empty", "rank", "edge", "reduction", "invalid",
    "determinism", "size", "documents",
)  # fmt: skip
"""In the order in which they run. ``documents`` has the contradictions of the sources."""

_SHORT = {"float": "f", "int": "s", "bool": "b", "complex": "c"}
_REDUCTIONS = ("none", "mean", "sum", "batchmean")
_LISTED = 4
"""Of longer lists, ids have this many numbers, and how many more there are."""


@dataclass(frozen=True, eq=False)
class Case:
    """One call, without its data, which follow from the seed and the id."""

    id: str
    """``aclnnKlDivBackward/grid/f32-mean-4x6-0007``."""
    statement: Statement
    block: str
    dtype: DType
    """What it is counted under; tensors may have others."""
    dtypes: Mapping[str, DType]
    """Of the inputs that are given."""
    shapes: Mapping[str, Shape]
    """Of the inputs that are given, in the operator's order."""
    attributes: Mapping[str, Any]
    outputs: Mapping[str, DType | None] = field(default_factory=dict)
    """Outputs that are given; None: of the dtype that it would have anyway."""
    layouts: Mapping[str, Arrangement] = field(default_factory=dict)
    setup: Setup = field(default_factory=Setup)
    defects: tuple[Invalid, ...] = ()
    """What is wrong with it; the first must be found."""
    contradiction: Contradiction | None = None
    products: tuple[str, ...] = ()
    """Short SoC names that it is for; empty: all."""
    repeated: bool = False
    """Run again, and several times at once: every answer must have the same bits."""


def short(dtype: DType) -> str:
    """f32, bf16, s64, u8, b8."""
    if dtype.name == "BF16":
        return "bf16"
    letter = "u" if dtype.name.startswith("U") else _SHORT.get(dtype.kind, "x")
    return f"{letter}{8 * dtype.itemsize}"


def dtype_named(text: str) -> DType:
    """The dtype of a name such as f32, FLOAT or float32.

    Raises ValueError.
    """
    for dtype in DTYPES:
        if text.lower() in (short(dtype), dtype.name.lower(), str(dtype.numpy)):
            return dtype
    raise ValueError(f"dtype: expected one such as f32, f16 or bf16, found {text!r}")


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
        return f"{name}{_clean(value.value)}{short(value.dtype)}"
    if isinstance(value, list | tuple) and len(value) > _LISTED:
        return f"{name}{_clean(list(value[:_LISTED]))}_and{len(value) - _LISTED}"
    return _clean(value) if isinstance(value, str) else f"{name}{_clean(value)}"


def _clean(value: Any) -> str:
    return re.sub(r"[^0-9A-Za-z.]+", "_", str(value).replace("-", "m")).strip("_")
