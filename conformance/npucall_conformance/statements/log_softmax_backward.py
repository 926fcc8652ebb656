"""aclnnLogSoftmaxBackward [src:softmax]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _softmax as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import capped
from npucall_conformance.stating.parts import In, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

NAN, INF = reals.NAN, reals.INFINITY
CHECKED = ("output", "grad_output")
"""The inputs in the order of the checks, which is not that of the signature."""


def row(k: Arguments, g: list[float], y: list[float]) -> list[float]:
    total = reals.capped(reals.total(g), k.top)
    return [a - reals.exp(b, k.top) * total for a, b in zip(g, y, strict=True)]


def vector(k: Arguments, g: Any, y: Any) -> Any:
    weight = capped(np.exp(y), k.top)
    value = g - weight * capped(g.sum(-1, keepdims=True), k.top)
    return value, np.abs(g) + weight * np.abs(g).sum(-1, keepdims=True)


LOG_SOFTMAX_BACKWARD = rowwise(
    "aclnnLogSoftmaxBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* output, int64_t dim, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    inputs=(In("grad_output", normal()), In("output", shared.log_probabilities)),
    output=Out("out", shape="grad_output", dtype="grad_output"),
    row=row,
    vector=vector,
    kernel=dtype_of("grad_output"),
    faint=shared.faint("output"),
    npu=_npu.softmax_gradient("_log_softmax_backward_data"),
    torch=lambda k, torch: torch.ops.aten._log_softmax_backward_data(  # noqa: SLF001  # its name
        k["grad_output"], k["output"], k["dim"], torch.float64
    ),
    attributes=shared.DIMS,
    mixed=shared.CONVERTED,
    empty=shared.EMPTY,
    edges=(
        Setup("rows", values={
            "grad_output": [
                [1, 2, 3], [1, 2, 3], [0, 0, 0], [300, 300, -300], [INF, 1, 1], [INF, -INF, 1],
                [-INF, 1, 1], [NAN, 1, 1], [1, 1, 1], [1, 1, -2], [1e-4, 0, -1e-4],
            ],
            "output": [
                [0, -INF, -1], [12, 89, -104], [-1, -1, 1], [0, -0.0, 5], [-1, -2, -INF],
                [-1, -2, -3], [-1, -2, -INF], [-1, -2, -3], [NAN, -1, INF], [INF, 89, -1],
                [-10, -1, 0],
            ],
        }),
        Setup("sum-overflows", values={"grad_output": [[3e38, 3e38]], "output": [[-1, -2]]}),
        Setup("sum-of-60000s", values={"grad_output": [[6e4, 6e4, 1]], "output": [[-1, -2, -9]]}),
    ),
    empty_before="dtype-bf16-output",
    invalid=(
        *defects.nulls(*CHECKED, "out"),
        *defects.no_bfloat16(*CHECKED),
        *defects.dtypes(*CHECKED),
        *defects.dtypes("output", found=FLOAT16),
        *defects.dtypes("grad_output", found=FLOAT16, blames=("output",)),
        *defects.ranks(*CHECKED),
        *shared.SHAPES,
        *shared.BAD_DIMS,
        shared.EMPTY_DIM,
        *shared.BAD_OUT,
    ),
)  # fmt: skip
