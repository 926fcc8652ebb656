"""aclnnLogSoftmax [src:softmax]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32, DType
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _softmax as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.parts import Contradiction, DTypes, In, Out, Setup, mixed_floats
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE


def row(_: Arguments, x: list[float]) -> list[float]:
    top = max(x)
    total = reals.log(reals.total([reals.exp(each - top) for each in x]))
    return [each - top - total for each in x]


def vector(_: Arguments, x: Any) -> Any:
    value = shared.log_softmax_of(x)
    return value, 1 + np.abs(value)  # a sum, 1 or more, whose rounding shows in its logarithm


def kernel(dtypes: DTypes) -> DType:
    """That of the output: self is converted to it first."""
    return dtypes.get("out", dtypes["self"])


LOG_SOFTMAX = rowwise(
    "aclnnLogSoftmax",
    prototype="const aclTensor* self, int64_t dim, aclTensor* out",
    takes=FLOATS_AND_DOUBLE,
    inputs=(In("self", normal(2)),),
    output=Out("out", shape="self", dtype="self"),
    row=row,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE),
    kernel=kernel,
    faint=shared.faint("self"),
    npu=_npu.softmax("_log_softmax"),
    torch=lambda k, torch: torch.log_softmax(k["self"], k["dim"]),
    attributes=shared.DIMS,
    mixed=(
        *mixed_floats("self", output="out"),
        *(Setup(dtypes={"self": each, "out": DOUBLE}) for each in FLOATS),
        *(Setup(dtypes={"self": DOUBLE, "out": each}) for each in FLOATS),
        Setup(
            "beyond-float16", (2,), dtypes={"self": FLOAT, "out": FLOAT16},
            values={"self": [7e4, 0]}, attributes={"dim": 0},
        ),
    ),
    edges=shared.FORWARD_EDGES,
    invalid=(
        *defects.nulls("self", "out"),
        *shared.BAD_DIMS,
        *defects.no_bfloat16("self", "out"),
        *defects.dtypes("self", "out", found=INT32),
        *defects.ranks("self", "out"),
        # A step blames the tensor that it names first, out in both.
        *defects.shapes("out", (4, 3), (1, 3, 4)),
        *defects.shapes("self", (4, 3), (1, 4), blames=("out",)),
    ),
    contradictions=(
        Contradiction(
            "F27", "what is rounded to a narrower output",
            Setup(dtypes={"self": FLOAT, "out": FLOAT16}, values={"self": [2049.0, 2048.0]}),
            {"as Softmax": [-0.31326169, -1.31326169], "source": [-0.69314718, -0.69314718]},
            "source",
        ),
    ),
)  # fmt: skip
