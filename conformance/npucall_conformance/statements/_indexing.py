"""What statements of operators with indices along a dimension share."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT, INT32, INT64, UINT16, UINT32, UINT64
from npucall.errors import ArgumentError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import Domain, Draw
from npucall_conformance.stating.parts import In, Invalid, Setup
from npucall_conformance.stating.tables import ARITHMETIC, WITH_BFLOAT16, Takes, on

EVERY = (*ARITHMETIC, UINT16, UINT32, UINT64)
DIMS = (0, -1, lambda base: len(base) // 2)


def and_on(older: tuple[str, ...], *dtypes: Any, newer: tuple[str, ...] = WITH_BFLOAT16) -> Takes:
    """These dtypes on products with BF16, and on older ones."""
    return {**on(newer, *dtypes), **on(older, *(each for each in dtypes if each is not BF16))}


def extent(shape: Shape, dim: int) -> int:
    """Along a dimension; of rank 0 it is 1."""
    return (shape or (1,))[dim]


def as_rows(array: Any) -> Any:
    """An array whose rank is at least 1."""
    return np.asarray(array).reshape(np.shape(array) or (1,))


def axis_of(k: Arguments) -> int:
    """The dimension, counted from the front."""
    return int(k["dim"]) % max(k["self"].ndim, 1)


def places(below: int = 0, beyond: int = 0) -> Domain:
    """Places along the dimension ``dim`` of self, and some that are none."""

    def draw(given: Draw) -> Any:
        count = max(extent(given.shapes["self"], given["dim"]), 1)
        return given.random.integers(-below and -count - below, count + beyond, given.shape)

    return draw


def index(domain: Domain) -> In:
    """The tensor of places."""
    return In("index", domain, dtypes=(INT64, INT32))


def refused_index(*products: str) -> tuple[Invalid, ...]:
    """Dtypes of indices that are none."""
    return (
        *defects.dtypes("index", found=FLOAT, products=products),
        *defects.dtypes("index", found=UINT16, products=products),
    )


def beyond(shape: Shape, *found: int) -> tuple[Invalid, ...]:
    """Indices that are no places."""
    filled = np.zeros(shape)
    return tuple(
        Invalid(f"index-{each}", {"index": {"values": np.where(filled == 0, each, 0)}}, ("index",),
                ArgumentError)
        for each in found
    )  # fmt: skip


def number_with(name: str, shape: Shape) -> Invalid:
    """A tensor beside a self of rank 0."""
    return Invalid(f"{name}-beside-number", {name: {"shape": shape}}, (name,), ShapeError,
                   base=Setup(base=()), block="rank")  # fmt: skip


def nine(*names: str) -> Invalid:
    """All of these tensors have nine dimensions, and self is to blame."""
    changes = {name: {"shape": defects.NINE} for name in names}
    return Invalid("rank-9", changes, ("self",), ShapeError, block="rank", alone=True)
