"""aclnnCat and aclnnStack [src:lists]."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import (
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT8_E5M2,
    FLOAT16,
    FLOATS,
    INT32,
    INT64,
    UINT16,
    UINT32,
    UINT64,
)
from npucall.errors import ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements._indexing import DIMS, EVERY, and_on
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import ONLY_950, RANK_SHAPES, Statement
from npucall_conformance.stating.tables import INTEGERS, on
from npucall_conformance.stating.written import WrittenCall, of

NULLPTR = 561103
LIST = ("tensors[0]", "tensors[1]", "tensors[2]")
USUAL = (*FLOATS, DOUBLE, *INTEGERS, BOOL, COMPLEX64)
COMMON: dict[str, Any] = {
    "prototype": "const aclTensorList* tensors, int64_t dim, aclTensor* out",
    "legacy": (),
    "inputs": (
        In(LIST[0], normal(2.0)),
        In(LIST[1], normal(2.0), optional=True),
        In(LIST[2], normal(2.0), optional=True, beside=LIST[1]),
    ),
    "kernel": promotion(*LIST),
    "dtypes": (*FLOATS, DOUBLE),
    "attributes": {"dim": DIMS},
    "cost": 0.0,
}
MIXED = tuple(
    Setup(dtypes=dict(zip(LIST, dtypes, strict=False)), absent=(LIST[2],) * (len(dtypes) < 3))
    for dtypes in ((FLOAT16, FLOAT), (FLOAT, INT32), (INT32, FLOAT16, FLOAT), (FLOATS[2], FLOAT16))
)


def axis_of(k: Arguments, more: int) -> int:
    return int(k["dim"]) % (k[LIST[0]].ndim + more)


def parts(k: Arguments) -> list[Any]:
    """What is put together, without what is no part of it."""
    return [each for each in k["tensors"] if each.shape != (0,)] or k["tensors"][:1]


def cat_shape(k: Arguments) -> Shape:
    like, axis = parts(k)[0].shape, int(k["dim"]) % parts(k)[0].ndim
    total = sum(each.shape[axis] for each in parts(k))
    return (*like[:axis], total, *like[axis + 1 :])


def cat_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    """The second is one longer, the third shorter."""
    axis = attributes["dim"] % max(len(base), 1)
    longer = tuple(n + (n > 0 and a == axis) for a, n in enumerate(base))
    return {LIST[0]: base, LIST[1]: longer, LIST[2]: tuple(
        1 if a == axis and n else n for a, n in enumerate(base))}  # fmt: skip


def cat_loops(k: Arguments) -> Any:
    shape = cat_shape(k)
    axis = int(k["dim"]) % len(shape)
    out = np.empty(shape, k[LIST[0]].dtype)
    before = 0
    for part in parts(k):
        for place in product(*map(range, part.shape)):
            there = list(place)
            there[axis] += before
            out[tuple(there)] = part[place]
        before += part.shape[axis]
    return out


CAT = Statement(
    "aclnnCat",
    takes={
        **on(("Ascend910B", "Ascend910_93"), *USUAL),
        **on(("Ascend910", "Ascend310P"), *(each for each in USUAL if each is not FLOATS[2])),
        **on(ONLY_950, *USUAL, UINT16, UINT32, UINT64),
    },
    outputs=(Out("out", cat_shape, promotion(*LIST)),),
    loops=cat_loops,
    arrays=lambda k: Terms(np.concatenate(parts(k), k["dim"])),
    shapes=cat_shapes,
    npu=aten("cat", "tensors", "dim"),
    torch=lambda k, torch: torch.cat(k["tensors"], k["dim"]),
    **COMMON,
    rank_shapes=RANK_SHAPES[1:],
    mixed=MIXED,
    edges=(
        Setup("no-part", (2, 3), shapes={LIST[1]: (0,)}),
        Setup("no-part-first", (2, 3), shapes={LIST[0]: (0,)}),
        Setup("of-two", (2, 3), absent=(LIST[2],)),
    ),
    empty=(Setup("no-part-at-all", (0,), shapes=dict.fromkeys(LIST, (0,))),),
    written=(
        WrittenCall("integers", {LIST[0]: of(INT64, 2**62 + 1), LIST[1]: of(INT64, 5, 6)},
                    (of(INT64, 2**62 + 1, 5, 6),), {"dim": 0}),
        WrittenCall("complex", {LIST[0]: of(COMPLEX64, 1j), LIST[1]: of(COMPLEX64, 2)},
                    (of(COMPLEX64, 1j, 2),), {"dim": -1}),
    ),
    invalid=(
        *defects.nulls("tensors", "out"),
        Invalid("no-tensors", {"tensors": ()}, ("tensors",), ShapeError),
        *defects.dtypes(*LIST, found=FLOAT8_E5M2),
        *defects.no_bfloat16(*LIST),
        *defects.dtypes("out", found=FLOAT8_E5M2),
        *defects.dtypes(LIST[1], found=UINT16, blames=LIST[:2], products=ONLY_950),
        *defects.uncastable("out"),
        *defects.formats(*LIST),
        *(replace(row, row=f"{row.row}-nchw")
          for row in defects.formats(*LIST[1:], "out", found=Format.NCHW)),
        *defects.ranks(*LIST),
        *defects.values("dim", 2, -3),
        *defects.shapes(LIST[1], (3, 5), (12,), (3, 4, 1)),
        *defects.shapes(LIST[2], (3, 5), ()),
        *defects.shapes("out", (3, 4), (32,)),
    ),
)  # fmt: skip


def stack_shape(k: Arguments) -> Shape:
    shape, axis = k[LIST[0]].shape, axis_of(k, 1)
    return (*shape[:axis], len(k["tensors"]), *shape[axis:])


def stack_loops(k: Arguments) -> Any:
    axis, out = axis_of(k, 1), np.empty(stack_shape(k), k[LIST[0]].dtype)
    for number, each in enumerate(k["tensors"]):
        for place in product(*map(range, each.shape)):
            out[(*place[:axis], number, *place[axis:])] = each[place]
    return out


STACK = Statement(
    "aclnnStack",
    takes=and_on(("Ascend910", "Ascend310P"), *EVERY),
    null=NULLPTR,
    outputs=(Out("out", stack_shape, promotion(*LIST)),),
    loops=stack_loops,
    arrays=lambda k: Terms(np.stack(k["tensors"], k["dim"])),
    npu=aten("stack", "tensors", "dim"),
    torch=lambda k, torch: torch.stack(k["tensors"], k["dim"]),
    **COMMON,
    rank_shapes=tuple(shape for shape in RANK_SHAPES if len(shape) < 8),
    mixed=MIXED,
    edges=(Setup("of-two", (2, 3), absent=(LIST[2],)),),
    written=(
        WrittenCall("unsigned", {LIST[0]: of(UINT64, 2**63 + 1), LIST[1]: of(UINT64, 2**64 - 1)},
                    (of(UINT64, 2**63 + 1, 2**64 - 1, shape=(2, 1)),), {"dim": 0}),
        WrittenCall("complex", {LIST[0]: of(COMPLEX128, 1j), LIST[1]: of(COMPLEX128, 2)},
                    (of(COMPLEX128, 1j, 2, shape=(1, 2)),), {"dim": -1}),
    ),
    empty_before="shape-out-3x4",
    invalid=(
        *(replace(row, status=NULLPTR) for row in defects.nulls("tensors", "out")),
        Invalid("no-tensors", {"tensors": ()}, ("tensors",), ShapeError),
        *defects.dtypes(*LIST, found=FLOAT8_E5M2),
        *defects.no_bfloat16(*LIST),
        *defects.dtypes("out", found=FLOAT8_E5M2),
        *defects.dtypes(LIST[1], found=UINT16, blames=LIST[:2]),
        *defects.uncastable("out"),
        *defects.ranks(LIST[0]),
        *defects.values("dim", 3, -4),
        *defects.shapes(LIST[1], (3, 5), (12,)),
        *defects.shapes(LIST[2], (3, 5), (3, 4, 1)),
        *defects.shapes("out", (3, 4), (3, 3, 5)),
    ),
)  # fmt: skip
