"""What statements of reductions along dimensions have in common: the loops, sums, and defects."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import COMPLEX64, FLOAT
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _arithmetic as arithmetic
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.parts import Invalid, Setup

NAN, INF = reals.NAN, reals.INFINITY


def all_dims(base: Shape) -> tuple[int, ...]:
    """Every dimension, from the last."""
    return tuple(range(-1, -len(base) - 1, -1))


DIMS = ((), (0,), (-1,), all_dims)
"""None, which is all; the first; the last; all."""


def summed(k: Arguments, dims: str) -> set[int]:
    """The dimensions that are summed over."""
    rank = k["self"].ndim
    return {dim % max(rank, 1) for dim in k[dims]} or set(range(rank))


def out_shape(k: Arguments, dims: str, keep: str) -> Shape:
    """The shape of the output."""
    gone = summed(k, dims)
    extents = list(enumerate(k["self"].shape))
    if k[keep]:
        return tuple(1 if dim in gone else extent for dim, extent in extents)
    return tuple(extent for dim, extent in extents if dim not in gone)


def lists(k: Arguments, dims: str) -> list[list[float]]:
    """The elements that are added up for each element of the output, in row-major order."""
    gone, shape = summed(k, dims), k["self"].shape
    kept = [range(1 if dim in gone else extent) for dim, extent in enumerate(shape)]
    found: dict[tuple[int, ...], list[float]] = {place: [] for place in product(*kept)}
    elements = k["self"].reshape(-1).tolist()
    for place, element in zip(product(*map(range, shape)), elements, strict=True):
        found[tuple(0 if d in gone else i for d, i in enumerate(place))].append(element)
    return list(found.values())


def sums(k: Arguments, dims: str, keep: str) -> Terms:
    """The sums, with the sizes of their terms."""
    x, axes, shape = k["self"], tuple(summed(k, dims)), out_shape(k, dims, keep)
    if not x.ndim:
        return Terms(x.reshape(shape), np.abs(x).reshape(shape))
    parts = (x.sum(axes).reshape(shape), np.abs(x).sum(axes).reshape(shape))
    return Terms(*parts, prod(x.shape[a] for a in axes))


def large(dims: str) -> tuple[Setup, ...]:
    """Tensors that are summed in several pieces, whose sums are then added."""
    bases: dict[str, tuple[Shape, tuple[int, ...]]] = {
        "many-rows": ((50_021, 3), (1,)),
        "long-rows": ((3, 50_021), (1,)),
        "columns": ((50_021, 3), (0,)),
        "long-columns": ((3, 50_021), (0,)),
        "middle": ((37, 53, 61), (1,)),
        "ends": ((37, 53, 61), (0, -1)),
        "everything": ((1031, 1033), ()),
    }
    return tuple(Setup(note, base, attributes={dims: axes}) for note, (base, axes) in bases.items())


def wrong_dims(dims: str) -> tuple[Invalid, ...]:
    """Dimensions that are not there, or twice."""
    return tuple(
        Invalid(f"{dims}-{note}", {dims: value}, (dims,), AttributeValueError)
        for note, value in (("beyond", (9,)), ("before", (-10,)), ("twice", (0, 1, 0)))
    )


def wrong_outputs(dims: str, keep: str) -> tuple[Invalid, ...]:
    """A complex output of nothing, and outputs of other shapes."""
    first = Setup(attributes={dims: (0,)})
    return (
        Invalid(
            "complex-of-nothing",
            {"self": {"shape": (0, 4)}, "dtype": COMPLEX64, "out": {"dtype": COMPLEX64}},
            ("out",), DTypeError, base=first,
        ),
        *defects.shapes("out", (3,), (4, 1), base=first),
        Invalid("kept", {keep: True}, ("out",), ShapeError, base=first),
    )  # fmt: skip


def of_dtype(dtype: Any, *values: float, self: Any = FLOAT, note: str = "", **more: Any) -> Setup:
    """Numbers that are converted to a dtype first."""
    return Setup(
        note, values={"self": values}, dtypes={"self": self}, attributes={"dtype": dtype, **more}
    )


EDGES = tuple((x, y) for x in arithmetic.EDGES for y in arithmetic.EDGES)
"""Pairs, each in a row."""
