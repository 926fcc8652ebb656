"""aclnnSoftmaxBackward [src:softmax]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _softmax as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import capped
from npucall_conformance.stating.parts import HALFWAY, In, Out, Setup, halfway
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = shared.INPUTS
NAN, INF = reals.NAN, reals.INFINITY


def row(k: Arguments, g: list[float], y: list[float]) -> list[float]:
    mean = reals.capped(reals.total([a * b for a, b in zip(g, y, strict=True)]), k.top)
    return [a * b - mean * b for a, b in zip(g, y, strict=True)]


def vector(k: Arguments, g: Any, y: Any) -> Any:
    mean = capped(np.einsum("...i,...i->...", g, y), k.top)[..., np.newaxis]
    size = np.abs(g * y) + np.abs(g * y).sum(-1, keepdims=True) * np.abs(y)
    return y * g - y * mean, size


def faint(k: Arguments) -> tuple[str, ...]:
    """A row of equal gradients has no gradient, since its probabilities add up to 1."""
    rows = np.moveaxis(np.atleast_1d(k["grad_output"]), k["dim"], -1)
    return ("out",) if (rows == rows[..., :1]).all() else ()


SOFTMAX_BACKWARD = rowwise(
    "aclnnSoftmaxBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* output, int64_t dim, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    inputs=(In("grad_output", shared.gradients), In("output", shared.probabilities)),
    output=Out("out", shape="grad_output", dtype="grad_output"),
    row=row,
    vector=vector,
    kernel=dtype_of("grad_output"),
    faint=faint,
    npu=_npu.softmax_gradient("_softmax_backward_data"),
    torch=lambda k, torch: torch.ops.aten._softmax_backward_data(  # noqa: SLF001  # its name
        k["grad_output"], k["output"], k["dim"], torch.float64
    ),
    attributes=shared.DIMS,
    mixed=shared.CONVERTED,
    empty=shared.EMPTY,
    edges=(
        Setup("rows", values={
            "grad_output": [
                [1, 2, 3], [1, 2, 3], [0, 0, 0], [300, 300, -300], [INF, 1, 1], [INF, -INF, 1],
                [INF, 1, 1], [-INF, 1, 1], [NAN, 1, 1], [1, 1, 1], [1, 1, 1], [1e-4, 0, -1e-4],
            ],
            "output": [
                [0, 0, 1], [-1, 2, 300], [0.5, 0.25, 0.25], [1, 1, 1], [0.5, 0.25, 0.25],
                [0.5, 0.25, 0.25], [0, 1, 0], [0.5, 0.5, 0], [0.5, 0.5, 0], [NAN, 0.5, 0.5],
                [INF, 0.5, 0.5], [1e-4, 1e-4, 1],
            ],
        }),
        Setup("sum-overflows", values={"grad_output": [[3e38, 3e38]], "output": [[1, 1]]}),
        Setup("sum-of-60000s", values={"grad_output": [[6e4, 6e4, 1]], "output": [[1, 1, 0.25]]}),
    ),
    halfway=halfway({"grad_output": HALFWAY, "output": 0.25}, (len(HALFWAY), 1), dim=-1),
    empty_before="dtype-bf16-grad_output",
    invalid=(
        *defects.nulls(*INPUTS, "out"),
        *defects.no_bfloat16(*INPUTS),
        *defects.dtypes(*INPUTS),
        *defects.dtypes("output", found=FLOAT16),
        *defects.dtypes("grad_output", found=FLOAT16, blames=("output",)),
        *shared.BAD_DIMS,
        shared.EMPTY_DIM,
        *defects.ranks("grad_output"),
        *shared.SHAPES,
        *shared.BAD_OUT,
    ),
)  # fmt: skip
