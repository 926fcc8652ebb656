"""aclnnTanhBackward [src:tanh]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT16, FLOATS, INT32
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import HALFWAY, In, Out, crossed, halfway
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE

INPUTS = ("grad_output", "output")
OUTPUT = "grad_input"
NAN, INF = reals.NAN, reals.INFINITY


def scalar(k: Arguments, g: float, y: float) -> float:
    return g * ((1 - y) * (1 + y))


def vector(k: Arguments, g: Any, y: Any) -> Any:
    return g * (1.0 - y**2), np.abs(g) * (1 + y**2)


TANH_BACKWARD = elementwise(
    "aclnnTanhBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* output, aclTensor* gradInput",
    takes=FLOATS_AND_DOUBLE,
    inputs=(In("grad_output", normal()), In("output", uniform(-0.999, 0.999))),
    output=Out(OUTPUT, shape=lambda k: k.shape(*INPUTS), dtype="grad_output"),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    dtypes=(*FLOATS, DOUBLE),
    kernel=dtype_of("grad_output"),
    npu=aten("tanh_backward", "grad_output", "output"),
    torch=lambda k, torch: torch.ops.aten.tanh_backward(k["grad_output"], k["output"]),
    edges=(
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
            "output": (0.0, -0.0, 1.0, -1.0, 0.99951171875, 1e-4, 2.0, 300.0, INF, -INF, NAN),
        }),
    ),
    halfway=halfway({"grad_output": HALFWAY, "output": 0.5}),
    written=written.TANH_BACKWARD,
    invalid=(
        *defects.nulls(*INPUTS, OUTPUT),
        *defects.dtypes(*INPUTS, OUTPUT, found=INT32),
        *defects.no_bfloat16(*INPUTS, OUTPUT),
        # A step blames the tensor that it names first, gradOutput in both.
        *defects.dtypes("grad_output", found=FLOAT16),
        *defects.dtypes("output", found=FLOAT16, blames=("grad_output",)),
        *defects.dtypes(OUTPUT, found=DOUBLE, blames=("grad_output",)),
        *defects.ranks(*INPUTS),
        *defects.shapes("grad_output", (5, 3), blames=INPUTS),
        *defects.shapes("output", (5, 3), blames=INPUTS),
        *defects.shapes(OUTPUT, (4, 3), (1, 3, 4), (1, 4)),
    ),
)  # fmt: skip
