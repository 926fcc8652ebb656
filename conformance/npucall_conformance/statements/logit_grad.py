"""aclnnLogitGrad [src:logit]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16
from npucall.errors import AclnnStatus
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import mixed, normal, probabilities, uniform
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Out, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

TENSORS = ("x", "dy", "out")
NAN, INF = reals.NAN, reals.INFINITY
TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
# The FLOAT next to 0.35 is less than it: inside, since eps is narrowed to that FLOAT.
LOW, HIGH = np.float32(0.35), np.float32(1) - np.float32(0.35)
ENDS = tuple(
    float(x)
    for end in (LOW, HIGH)
    for x in (end, np.nextafter(end, np.float32(0)), np.nextafter(end, np.float32(1)))
)
"""Both ends in FLOAT, and the numbers beside them."""
EDGES = {
    "x": (0.0, -0.0, 1.0, 0.5, 0.125, 0.875, 0.35, 0.1, 0.9, 1e-4, -1e-4, 2.0, INF, -INF, NAN),
    "dy": (1.0, 0.0, -300.0, 1e-4, INF, NAN),
}


def ends(k: Arguments) -> tuple[float, float]:
    """From where to where there is a gradient; in FLOAT, as eps is."""
    margin = np.float32(max(k["eps"], 0.0))
    return float(margin), float(np.float32(1) - margin)


def scalar(k: Arguments, x: float, dy: float) -> float:
    low, high = ends(k)
    if low <= x <= high:
        return reals.divide(dy, x * (1 - x))
    return NAN if k["eps"] < 0 else 0.0  # NaN comes here


def vector(k: Arguments, x: Any, dy: Any) -> Any:
    low, high = ends(k)
    outside = ~(x >= low) | ~(x <= high)
    answer = np.asarray(dy / x / (1.0 - x))
    answer[outside] = 0.0 if k["eps"] >= 0 else NAN
    return answer


def torch_says(k: Arguments, torch: Any) -> Any:
    low = None if k["eps"] < 0 else ends(k)[0]
    return torch.ops.aten.logit_backward(k["dy"], k["x"], low)


LOGIT_GRAD = elementwise(
    "aclnnLogitGrad",
    prototype="const aclTensor* x, const aclTensor* dy, double eps, const aclTensor* out",
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    defaults={"eps": -1.0},
    inputs=(In("x", mixed(probabilities(), uniform(-0.5, 1.5))), In("dy", normal())),
    output=Out("out", shape="x", dtype="x"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("x"),
    npu=aten("logit_backward", "dy", "x", "eps"),
    torch=torch_says,
    attributes={"eps": (0.125, -1.0, 0.0, 0.35, 1e-3)},
    edges=(
        crossed(
            {"x": ENDS, "dy": (1.0, -3.0)},
            attributes={"eps": 0.35},
            note="at-the-ends",
            only=(FLOAT,),
            telling=True,
        ),
        crossed(EDGES),
        crossed(EDGES, attributes={"eps": 0.5}, note="a-point"),
        crossed(EDGES, attributes={"eps": 0.75}, note="nothing-inside"),
    ),
    invalid=(
        *defects.nulls(*TENSORS),
        *defects.dtypes("x"),
        *defects.all_dtypes(*TENSORS),
        *defects.dtypes("x", found=FLOAT16, blames=("dy",)),
        *defects.dtypes("dy"),
        *defects.dtypes("dy", found=FLOAT16, alone=True),
        *defects.dtypes("out"),
        *defects.dtypes("out", found=FLOAT16, alone=True),
        *defects.shapes("x", (4, 3), blames=("dy",), status=TILING),
        *defects.shapes("dy", (4, 3), (1, 4), (1, 3, 4), status=TILING),
        *defects.shapes("out", (4, 3), (1, 3, 4), status=TILING),
    ),
)
