"""aclnnSmoothL1LossBackward [src:smooth-l1-loss]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.errors import ShapeError
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import near, normal, upstream
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    HALFWAY,
    In,
    Invalid,
    Out,
    Setup,
    crossed,
    halfway,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("grad_out", "self", "target")
OUTPUT = "grad_input"
NAN, INF = reals.NAN, reals.INFINITY
EDGES = {
    "grad_out": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, NAN),
    "self": (0.0, -0.0, 1.0, -2.5, 300.0, INF, -INF, NAN),
    "target": (0.0, -0.0, 1.0, INF, -INF, NAN),
}
"""With distances of 0, and of the betas 1 and 2.5 to both sides."""


def scalar(k: Arguments, g: float, s: float, t: float) -> float:
    distance, beta = s - t, k["beta"]
    if distance <= -beta:
        slope = -1.0
    elif distance >= beta:
        slope = 1.0
    else:
        slope = reals.divide(distance, beta)  # NaN comes here
    return slope * g * k.mean("self")  # also where the others stretch self


def vector(k: Arguments, g: Any, s: Any, t: Any) -> Any:
    d, beta = np.subtract(s, t), np.float64(k["beta"])
    slope = np.where(np.abs(d) >= beta, np.where(d > 0, 1.0, -1.0), d / beta)
    return g * slope / (s.size if k["reduction"] == 1 else 1)


def torch_says(k: Arguments, torch: Any) -> Any:
    backward = torch.ops.aten.smooth_l1_loss_backward
    return backward(k["grad_out"], k["self"], k["target"], k["reduction"], k["beta"])


SMOOTH_L1_LOSS_BACKWARD = elementwise(
    "aclnnSmoothL1LossBackward",
    prototype=(
        "const aclTensor* gradOut, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, float beta, aclTensor* gradInput"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1, "beta": 1.0},
    inputs=(
        In("grad_out", upstream("self")), In("self", normal()), In("target", near("self", 0.1))
    ),
    output=Out(OUTPUT, shape=lambda k: k.shape(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    kernel=promotion(*INPUTS),
    npu=aten("smooth_l1_loss_backward", "grad_out", *_npu.LOSS, "beta"),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2), "beta": (1.0, 0.0, 0.3, 2.5, 1e-3)},
    mixed=mixed_floats(*INPUTS, output=OUTPUT),
    empty=(Setup("one-empty", shapes={"grad_out": (), "self": (1, 0), "target": (2, 1)}),),
    edges=(crossed(EDGES), crossed(EDGES, attributes={"beta": INF}, note="no-end")),
    halfway=halfway(
        {"grad_out": HALFWAY, "self": 0.75, "target": 0.0}, reduction=0, beta=1.0
    ),
    invalid=(
        *defects.nulls(*INPUTS, OUTPUT),
        *defects.dtypes(*INPUTS, OUTPUT),
        *defects.no_bfloat16(*INPUTS, OUTPUT),
        *defects.ranks(*INPUTS),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        *defects.values("beta", -1.0, -INF, NAN),
        *defects.shapes("grad_out", (5, 3), blames=INPUTS[:2]),
        *defects.shapes("self", (5, 3), blames=INPUTS[:2]),
        *defects.shapes("target", (5, 3), blames=INPUTS),
        Invalid("output-transposed", {OUTPUT: {"shape": (4, 3)}}, (OUTPUT,), ShapeError),
        Invalid("output-of-higher-rank", {OUTPUT: {"shape": (1, 3, 4)}}, (OUTPUT,), ShapeError),
    ),
)  # fmt: skip
