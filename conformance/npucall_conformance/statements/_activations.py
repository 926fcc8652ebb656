"""What the statements of activations share: ``self`` and ``out``."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT16, INT32, INT64, UINT8, DType
from npucall.errors import DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.domains import choice, mixed, normal
from npucall_conformance.stating.parts import DTypes, In, Invalid, Setup
from npucall_conformance.stating.statement import LEFT_OUT

NAN, INF = reals.NAN, reals.INFINITY
TENSORS = ("self", "out")
SIGNED = (0, -1, 2, -7, 3, 5, 100, -100)
WHOLE = (0, 1, 2, 7, 3, 5, 100, 200)
SMALL_INTEGERS = (INT8, INT16, INT32, INT64, UINT8)
EDGES = (
    0.0, -0.0, 1e-7, -1e-7, 0.5, 1.0, -1.0, 1.5, -1.5, 3.0, -3.0, 6.0, 12.0, -12.0, 20.0, -20.0,
    20.5, 40.0, 300.0, -300.0, 6e4, -6e4, INF, -INF, NAN,
)  # fmt: skip


def numbers(scale: float = 2.0, *bends: float) -> In:
    """``self``: normal, and now and then where the activation bends."""
    return In("self", mixed(normal(scale), choice(0.0, -0.0, *bends), 0.1))


def edges(*more: float, **setup: Any) -> Setup:
    """Numbers that no formula likes, and more."""
    found = (*EDGES, *more)
    return Setup(base=(len(found),), values={"self": found}, **setup)


def whole(
    dtype: DType, out: DType | None = None, more: tuple[int, ...] = (), **setup: Any
) -> Setup:
    """Integers, and the dtype of an output that is given."""
    found = (0, 1) if dtype is BOOL else (*(WHOLE if dtype is UINT8 else SIGNED), *more)
    dtypes = {"self": dtype, **({} if out is None else {"out": out})}
    return Setup(base=(len(found),), values={"self": found}, dtypes=dtypes, **setup)


def converted(*pairs: tuple[DType, DType]) -> tuple[Setup, ...]:
    """Outputs of another dtype than ``self``."""
    return tuple(Setup(dtypes={"self": one, "out": other}) for one, other in pairs)


def float_of(dtypes: DTypes) -> DType:
    """FLOAT for integers and BOOL, else the dtype of ``self``."""
    return FLOAT if dtypes["self"].kind in ("int", "bool") else dtypes["self"]


def too_many_dimensions() -> tuple[Invalid, ...]:
    """Both tensors have nine: no shape differs then."""
    change = {name: {"shape": defects.NINE} for name in TENSORS}
    return (Invalid("rank-9-both", change, ("self",), ShapeError, block="rank"),)


def shapes_of(blamed: str) -> tuple[Invalid, ...]:
    """The shapes of both differ; one of them is always blamed."""
    wrong: tuple[Shape, ...] = ((4, 3), (1, 4), (1, 3, 4))
    return tuple(row for name in TENSORS for row in defects.shapes(name, *wrong, blames=(blamed,)))


def of_what_follows(name: str, output: str) -> tuple[Invalid, ...]:
    """The tensor has another dtype than the others, and the call leaves the output out."""
    changes = {name: {"dtype": FLOAT16}, output: LEFT_OUT}
    return (Invalid(f"dtype-{name}-of-no-output", changes, (name,), DTypeError),)


WIDER = ((DOUBLE, FLOAT), (FLOAT, DOUBLE))
"""Dtypes of ``self`` and ``out`` where DOUBLE is taken."""
