"""The error tables of operators.md 1.1, 1.2.1, 1.2.2 and 1.3 as defects of an otherwise valid call.

A defect changes fields of arguments. Two can be put into one call where they do not change the same
field, so that a call with both shows which of them is found first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT32, UINT16
from npucall.errors import (
    ArgumentMissingError,
    AttributeValueError,
    DTypeError,
    FormatError,
    NpucallError,
    ShapeError,
)
from npucall.tensors import Format, TensorSpec

from .raw import INPUTS, KL, KL_TARGET, L1, OUTPUTS, SHAPE, Arguments, valid

if TYPE_CHECKING:
    from collections.abc import Iterator

NINE = (1,) * 8 + (3,)
"""Nine dimensions that would broadcast with (2, 3) if they were allowed."""
APART = (4, 3)
"""Does not broadcast with (2, 3)."""
BOTH = ("self", "target")
NULL, INVALID = 161001, 161002


@dataclass(frozen=True)
class Defect:
    """One row, or one tensor of a row, of an error table."""

    row: str
    changes: dict[str, Any]
    """By argument: None, a number, or fields of its spec."""
    error: type[NpucallError]
    blamed: tuple[str, ...]
    status: int = INVALID

    def __str__(self) -> str:
        return f"{self.row}: {'+'.join(self.changes)}"


def absent(*names: str) -> list[Defect]:
    return [Defect("null", {n: None}, ArgumentMissingError, (n,), NULL) for n in names]


def dtypes(*names: str) -> list[Defect]:
    return [Defect("dtype", {n: {"dtype": DOUBLE}}, DTypeError, (n,)) for n in names]


def ranks(*names: str) -> list[Defect]:
    return [Defect("rank", {n: {"shape": NINE}}, ShapeError, (n,)) for n in names]


def private_formats(*names: str) -> list[Defect]:
    wrong = {"format": Format.FRACTAL_NZ}
    return [Defect("private format", {n: wrong}, FormatError, (n,)) for n in names]


def uncastable(output: str) -> Defect:
    return Defect("cast", {output: {"dtype": INT32}}, DTypeError, (output,))


def wrong_shape(output: str) -> Defect:
    return Defect("output shape", {output: {"shape": (3, 2)}}, ShapeError, (output,))


APART_PAIR = [
    Defect("self and target", {name: {"shape": APART}}, ShapeError, BOTH) for name in BOTH
]
NOT_EXPANDABLE = Defect(
    "grad_output expandable", {"grad_output": {"shape": (5, 2, 3)}}, ShapeError, ("grad_output",)
)
KL_TENSORS = (*INPUTS, OUTPUTS[KL])
TARGET_TENSORS = (*INPUTS, OUTPUTS[KL_TARGET])

KL_TABLE = [
    *absent(*KL_TENSORS),
    uncastable("out"),
    Defect("cast", {"out": {"dtype": BOOL}}, DTypeError, ("out",)),
    Defect("cast", {"self": {"dtype": COMPLEX64}}, DTypeError, ("out",)),
    *dtypes(*KL_TENSORS),
    *ranks(*KL_TENSORS),
    *APART_PAIR,
    NOT_EXPANDABLE,
    Defect(
        "grad_output expandable", {"grad_output": {"shape": APART}}, ShapeError, ("grad_output",)
    ),
    wrong_shape("out"),
    Defect("output shape", {"out": {"shape": (1, 2, 3)}}, ShapeError, ("out",)),
]
BUILTIN_TABLE = [
    *absent(*TARGET_TENSORS),
    uncastable("grad_target"),
    *dtypes(*TARGET_TENSORS),
    Defect("as target", {"grad_target": {"dtype": FLOAT16}}, DTypeError, ("grad_target",)),
    *ranks(*TARGET_TENSORS),
    *APART_PAIR,
    NOT_EXPANDABLE,
    wrong_shape("grad_target"),
    *private_formats(*TARGET_TENSORS),
]
COMMUNITY_TABLE = [
    *absent(*TARGET_TENSORS),
    *dtypes(*TARGET_TENSORS),
    *ranks(*INPUTS),
    Defect("common shape", {"grad_output": {"shape": APART}}, ShapeError, ("grad_output", "self")),
    Defect("common shape", {"self": {"shape": APART}}, ShapeError, ("grad_output", "self")),
    Defect("common shape", {"target": {"shape": APART}}, ShapeError, INPUTS),
    Defect("as target", {"grad_output": {"dtype": FLOAT16}}, DTypeError, ("grad_output",)),
    Defect("as target", {"self": {"dtype": BF16}}, DTypeError, ("self",)),
    Defect("as target", {"grad_target": {"dtype": FLOAT16}}, DTypeError, ("grad_target",)),
    wrong_shape("grad_target"),
    Defect("output shape", {"grad_target": {"shape": NINE}}, ShapeError, ("grad_target",)),
]
DOCUMENTED_TABLE = [*COMMUNITY_TABLE, *private_formats(*TARGET_TENSORS)]
L1_TABLE = [
    *absent(*INPUTS, "grad_input"),
    Defect("reduction", {"reduction": 3}, AttributeValueError, ("reduction",)),
    Defect("promotion", {"grad_output": {"dtype": UINT16}}, DTypeError, ("grad_output", "self")),
    Defect("promotion", {"self": {"dtype": UINT16}}, DTypeError, ("grad_output", "self")),
    Defect("promotion", {"target": {"dtype": UINT16}}, DTypeError, INPUTS),
    uncastable("grad_input"),
    *(Defect("promoted", {n: {"dtype": DOUBLE}}, DTypeError, INPUTS) for n in INPUTS),
    *ranks("self", "target", "grad_output", "grad_input"),
    Defect("common shape", {"self": {"shape": APART}}, ShapeError, ("self", "grad_output")),
    Defect("common shape", {"grad_output": {"shape": APART}}, ShapeError, ("self", "grad_output")),
    Defect(
        "common shape", {"target": {"shape": APART}}, ShapeError, ("self", "grad_output", "target")
    ),
    wrong_shape("grad_input"),
    Defect("output shape", {"grad_input": {"shape": (1, 2, 3)}}, ShapeError, ("grad_input",)),
]
TABLES = {
    (KL, ""): KL_TABLE,
    (KL_TARGET, "builtin"): BUILTIN_TABLE,
    (KL_TARGET, "community"): COMMUNITY_TABLE,
    (KL_TARGET, "documented"): DOCUMENTED_TABLE,
    (L1, ""): L1_TABLE,
}


def broken(operator: str, *defects: Defect) -> Arguments:
    """A call with these defects and no other."""
    changes: dict[str, Any] = {}
    for name, change in (item for defect in defects for item in defect.changes.items()):
        changes[name] = changes.get(name, {}) | change if isinstance(change, dict) else change
    return valid(operator, **{name: _value(change) for name, change in changes.items()})


def pairs(table: list[Defect]) -> Iterator[tuple[Defect, Defect]]:
    """Every two defects of a table that fit into one call, in the order of the table.

    Two tensors of one row are in signature order, since the table lists them so.
    """
    for first, second in combinations(table, 2):
        alike = first.row == second.row and first.blamed == second.blamed
        if not alike and _compatible(first, second):
            yield first, second


def _compatible(first: Defect, second: Defect) -> bool:
    """Whether no field is changed by both. No shape of a defect mends that of another tensor."""
    for name in first.changes.keys() & second.changes.keys():
        one, other = first.changes[name], second.changes[name]
        if not (isinstance(one, dict) and isinstance(other, dict)) or one.keys() & other.keys():
            return False
    return True


def _value(change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    fields: dict[str, Any] = {"dtype": FLOAT, "shape": SHAPE, **change}
    return TensorSpec(**fields)
