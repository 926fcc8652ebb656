"""aclnnSoftmax [src:softmax]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOATS, INT32
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _softmax as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.parts import In, Out, Setup, mixed_floats
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE


def row(_: Arguments, x: list[float]) -> list[float]:
    top = max(x)
    powers = [reals.exp(each - top) for each in x]
    total = reals.total(powers)
    return [reals.divide(power, total) for power in powers]


def vector(_: Arguments, x: Any) -> Any:
    below = x - x.max(-1, keepdims=True)
    powers = np.exp(below)
    value = powers / powers.sum(-1, keepdims=True)
    return value, value * (1 + np.abs(below))  # a difference of logits is rounded before its power


SOFTMAX = rowwise(
    "aclnnSoftmax",
    prototype="const aclTensor* self, int64_t dim, aclTensor* out",
    takes=FLOATS_AND_DOUBLE,
    legacy=(),
    inputs=(In("self", shared.logits),),
    output=Out("out", shape="self", dtype="self"),
    row=row,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE),
    kernel=dtype_of("self"),
    npu=_npu.softmax("_softmax"),
    torch=lambda k, torch: torch.softmax(k["self"], k["dim"]),
    attributes=shared.DIMS,
    mixed=(
        *mixed_floats("self", output="out"),
        *(Setup(dtypes={"self": each, "out": DOUBLE}) for each in FLOATS),
        *(Setup(dtypes={"self": DOUBLE, "out": each}) for each in FLOATS),
    ),
    empty=(
        # An empty self ends the checks before all others.
        Setup("dim-out-of-range", base=(0, 3), attributes={"dim": 7}),
        Setup("integers", base=(0, 3), dtypes={"self": INT32}),
        Setup("nine-dimensions", base=(0, *(1,) * 8)),
    ),
    edges=shared.FORWARD_EDGES,
    empty_before="dtype-int32-self",
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out", found=INT32),
        *defects.no_bfloat16("self", "out"),
        *shared.BAD_DIMS,
        *defects.ranks("self"),
        # A step blames the tensor that it names first, self in both.
        *defects.shapes("self", (4, 3), (1, 4)),
        *defects.shapes("out", (4, 3), (1, 3, 4), blames=("self",)),
    ),
)
