"""Rotary position embedding in loops and in arrays, for its statement and that of its gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, INT32
from npucall.errors import AclnnStatus, AttributeValueError, DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects
from npucall_conformance.stating.npu import InexpressibleError
from npucall_conformance.stating.parts import Attributes, Invalid, Setup

TILING: dict[str, Any] = {"status": AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR}
OLDER, NEW = ("Ascend910B", "Ascend910_93"), ("Ascend950",)


WORDS = {0: "half", 1: "interleave"}
"""The modes in the words of torch_npu."""


def word_of(mode: int) -> str:
    """Raises InexpressibleError for a mode that torch_npu's page does not have."""
    if mode not in WORDS:
        raise InexpressibleError(f"npu_rotary_mul has no mode {mode}")
    return WORDS[mode]


def ordered(x: Any, mode: int) -> Any:
    """The row whose elements meet the cosines."""
    return np.concatenate([x[..., ::2], x[..., 1::2]], -1) if mode == 3 else x


def partners(x: Any, mode: int) -> Any:
    """The row whose elements meet the sines."""
    x = ordered(x, mode)
    if mode == 1:
        return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    if mode == 2:  # the number of the page
        a, b, c, d = np.split(x, 4, -1)
        return np.concatenate([-b, a, -d, c], -1)
    a, b = np.split(x, 2, -1)
    return np.concatenate([-b, a], -1)


def shapes(rows: tuple[str, ...], base: Shape, _: Attributes) -> dict[str, Shape]:
    """Rows of the base shape, and the angles of its last but one dimension."""
    angles = (1, 1, *base[2:])
    return {**dict.fromkeys(rows, base), "cos": angles, "sin": angles}


SIZES: dict[str, Any] = {
    "attributes": {"mode": (0, 1)},
    "base_shapes": ((2, 3, 2, 4), (1, 2, 5, 6), (3, 1, 4, 8)),
    "layout_shape": (2, 3, 2, 4),
    "rank_shapes": ((1, 1, 1, 2), (2, 1, 1, 4)),
    "empty_shapes": (),
    "large_shape": (3, 5, 67, 122),
    "large": (
        Setup("many-summed", (32, 31, 2, 66), only=(FLOAT,)),
        Setup("many-rows", (3, 5, 3001, 4), only=(FLOAT,)),
        Setup("wide-rows", (7, 11, 13, 130), only=(FLOAT,)),
        Setup("long-rows", (1, 2, 99, 894), only=(FLOAT,)),
    ),
    "sized": lambda count: (1, 1, max(count // 4, 1), 4) if count < 512 else (2, 4, count // 64, 8),
    "fitted": lambda base: (*(max(e, 1) for e in base[:3]), base[3] + base[3] % 2 or 2),
    "broadcast": (
        *(
            Setup(f"cos-{'x'.join(map(str, cos))}", (2, 3, 2, 4), {"cos": cos, "sin": cos},
                  attributes={"mode": mode})
            for cos, mode in (
                ((1, 3, 1, 4), 0), ((2, 1, 2, 4), 0), ((1, 3, 1, 4), 1), ((2, 1, 1, 4), 1),
                ((2, 3, 1, 4), 0),
            )
        ),
        *(
            Setup(f"mode-{mode}-{'x'.join(map(str, cos))}", (2, 3, 2, 8), {"cos": cos, "sin": cos},
                  attributes={"mode": mode}, products=NEW)
            for mode in (2, 3)
            for cos in ((1, 1, 1, 8), (1, 1, 2, 8), (2, 3, 2, 8))
        ),
    ),
}  # fmt: skip


def wrong(x: str, others: tuple[str, ...], summed: tuple[str, ...] = ()) -> tuple[Invalid, ...]:
    """Rows of the checks of dtypes, modes and shapes; ``others``: of the shape and dtype of x."""

    def rows(note: str, shape: Shape, cos: Shape, *blames: str, **more: Any) -> Invalid:
        changes: dict[str, Any] = {key: {"shape": shape} for key in (x, *others)}
        angles = {key: {"shape": cos} for key in ("cos", "sin", *summed)}
        return Invalid(note, {**changes, **angles}, blames, ShapeError, **{**TILING, **more})

    tensors = (x, "cos", "sin", *others, *summed)
    return (
        *(
            Invalid(f"dtype-all-{d.name.lower()}", {n: {"dtype": d} for n in tensors}, (x,),
                    DTypeError)
            for d in (DOUBLE, INT32)
        ),
        *defects.dtypes("cos", "sin", *others, *summed),
        *defects.shapes(x, (6, 2, 4), **TILING),
        *defects.shapes("cos", (2, 4), **TILING),
        *defects.shapes("sin", (1, 1, 1, 2, 4), **TILING),
        rows("no-rows", (2, 0, 2, 4), (1, 1, 2, 4), x),
        *(
            Invalid(f"mode-{mode}", {"mode": mode}, ("mode",), AttributeValueError,
                    products=products, **TILING)
            for mode, products in ((2, OLDER), (4, NEW), (-1, ()))
        ),
        rows("odd", (2, 3, 2, 5), (1, 1, 2, 5), x),
        rows("896-wide", (2, 3, 2, 896), (1, 1, 2, 896), x, products=OLDER),
        rows("1026-wide", (2, 3, 2, 1026), (1, 1, 2, 1026), x, products=NEW),
        *defects.shapes("sin", (1, 1, 1, 4), **TILING),
        rows("angles-that-do-not-fit", (2, 3, 2, 4), (1, 2, 2, 4), "cos", x),
        rows("angles-of-half", (2, 3, 2, 4), (1, 1, 2, 2), "cos", x),
        rows("angles-for-each", (2, 3, 2, 4), (2, 3, 2, 4), "cos", x, products=OLDER),
        rows("angles-for-all", (2, 3, 2, 4), (1, 1, 1, 4), "cos", x, products=OLDER),
        rows("1000-items", (2, 1000, 2, 4), (1, 1, 2, 4), x, products=OLDER),
    )  # fmt: skip
