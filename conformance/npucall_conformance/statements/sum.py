"""aclnnSum [src:lists]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT8, INT32, UINT8
from npucall.errors import ShapeError
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import In, Invalid, Out, Setup, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on
from npucall_conformance.stating.written import WrittenCall, of

NAN, INF = reals.NAN, reals.INFINITY
LIST = ("tensors[0]", "tensors[1]", "tensors[2]")


def scalar(_: Arguments, *terms: float | None) -> float:
    return reals.total([term for term in terms if term is not None])


def vector(_: Arguments, *terms: Any) -> Any:
    there = [term for term in terms if term is not None]
    return np.add.reduce(np.broadcast_arrays(*there)), np.add.reduce(
        np.broadcast_arrays(*map(np.abs, there))
    )


SUM: Statement = elementwise(
    "aclnnSum",
    prototype="const aclTensorList* tensors, aclTensor* out",
    takes=on(("Ascend910B", "Ascend910_93"), FLOAT, FLOAT16, INT8, INT32, UINT8),
    legacy=(),
    inputs=(
        In(LIST[0], normal()),
        In(LIST[1], normal(), optional=True),
        In(LIST[2], normal(), optional=True, beside=LIST[1]),
    ),
    output=Out("out", lambda k: k.shape(*LIST), dtype_of(LIST[0])),
    scalar=scalar,
    vector=vector,
    space=LIST,
    kernel=dtype_of(LIST[0]),
    dtypes=(FLOAT, FLOAT16),
    npu="torch has no such operator",
    torch=lambda k, _: sum(k["tensors"]),
    edges=(crossed(dict.fromkeys(LIST, (0.0, 1.0, INF, -INF, NAN, 6e4))),
           Setup("of-two", (3,), absent=(LIST[2],))),
    written=(
        WrittenCall("integers", {LIST[0]: of(INT32, 2**31 - 1, 5), LIST[1]: of(INT32, 1)},
                    (of(INT32, -(2**31), 6),)),
        WrittenCall("bytes", {LIST[0]: of(UINT8, 250, 1), LIST[1]: of(UINT8, 10, 1)},
                    (of(UINT8, 4, 2),)),
    ),
    invalid=(
        *defects.nulls("tensors", "out"),
        Invalid("no-tensors", {"tensors": ()}, ("tensors",), ShapeError),
        *defects.dtypes(*LIST, "out", found=DOUBLE),
        *defects.dtypes(*LIST[1:], "out", found=INT8),
        *defects.ranks(*LIST, "out"),
        Invalid("broadcast", {LIST[1]: {"shape": (5, 4)}}, LIST[:2], ShapeError),
        Invalid("broadcast-last", {LIST[2]: {"shape": (5, 4)}}, LIST, ShapeError),
        *defects.shapes("out", (4,), (1, 3, 4)),
    ),
)  # fmt: skip
