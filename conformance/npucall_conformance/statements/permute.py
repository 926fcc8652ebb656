"""aclnnPermute [src:indexing]."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import (
    BF16,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT8_E4M3FN,
    FLOAT8_E5M2,
    FLOAT8_E8M0,
    FLOAT16,
    FLOATS,
    INT64,
)
from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements._indexing import EVERY
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on
from npucall_conformance.stating.written import WrittenCall, of

OLDER = tuple(each for each in EVERY if each is not BF16)


def shape(k: Arguments) -> Shape:
    return tuple(k["self"].shape[dim] for dim in k["dims"])


def loops(k: Arguments) -> Any:
    out = np.empty(shape(k), k["self"].dtype)
    for place in product(*map(range, out.shape)):
        there = [0] * out.ndim
        for dim, at in zip(k["dims"], place, strict=True):
            there[dim] = at
        out[place] = k["self"][tuple(there)]
    return out


def reverse(base: Shape) -> tuple[int, ...]:
    return tuple(range(len(base)))[::-1]


def turn(base: Shape) -> tuple[int, ...]:
    """The last dimension first, and negative ones."""
    return tuple(n - 1 if n else -1 for n in range(len(base)))


PERMUTE = Statement(
    "aclnnPermute",
    prototype="const aclTensor* self, const aclIntArray* dims, aclTensor* out",
    takes={
        **on(("Ascend910B", "Ascend910_93"), *EVERY),
        **on(("Ascend950",), *EVERY, FLOAT8_E5M2, FLOAT8_E4M3FN),
        **on(("Ascend910",), *(each for each in OLDER if each is not COMPLEX128)),
        **on(("Ascend310P", "Ascend310B"), *OLDER),
    },
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(In("self", normal(2.0)),),
    outputs=(Out("out", shape, "self"),),
    loops=loops,
    arrays=lambda k: Terms(np.transpose(k["self"], k["dims"])),
    kernel=dtype_of("self"),
    dtypes=(*FLOATS, DOUBLE),
    attributes={"dims": (reverse, turn)},
    cost=0.0,
    npu=aten("permute", "self", "dims"),
    torch=lambda k, torch: torch.permute(k["self"], k["dims"]),
    written=(
        WrittenCall("integers", {"self": of(INT64, 2**62 + 1, 5, 6, 7, shape=(2, 2))},
                    (of(INT64, 2**62 + 1, 6, 5, 7, shape=(2, 2)),), {"dims": (1, 0)}),
        WrittenCall("complex", {"self": of(COMPLEX64, 1j, 2, shape=(2, 1))},
                    (of(COMPLEX64, 1j, 2, shape=(1, 2)),), {"dims": (1, 0)}),
    ),
    invalid=(
        *defects.nulls("self", "dims", "out"),
        *defects.dtypes("self", found=FLOAT8_E8M0),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT8_E8M0),
        *defects.dtypes("out", found=FLOAT16),
        *defects.shapes("out", (12,), (4, 3, 1)),
        *defects.values("dims", (0,), (1, 0, 2)),
        Invalid("rank-9", {"self": {"shape": defects.NINE}, "out": {"shape": defects.NINE},
                           "dims": tuple(range(9))}, ("self",), ShapeError, block="rank"),
        *defects.values("dims", (0, 0), (-1, 1), (2, 0), (0, -3)),
        *defects.shapes("out", (3, 4)),
    ),
)  # fmt: skip
