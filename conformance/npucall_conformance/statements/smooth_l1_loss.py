"""aclnnSmoothL1Loss [src:smooth-l1-loss]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import loss
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import near, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    SQUARES,
    Contradiction,
    In,
    Out,
    Refusal,
    Setup,
    crossed,
    halfway,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("self", "target")
OUTPUT = "result"
NAN, INF = reals.NAN, reals.INFINITY
EDGES = {
    "self": (0.0, -0.0, 1.0, -2.5, 300.0, INF, -INF, NAN),
    "target": (0.0, -0.0, 1.0, INF, -INF, NAN),
}
"""With distances of 0, and of the betas 1 and 2.5 to both sides."""


def scalar(k: Arguments, s: float, t: float) -> float:
    distance, beta = abs(s - t), k["beta"]
    if distance < beta:
        return distance * distance / (2 * beta)
    return distance - beta / 2  # NaN comes here


def vector(k: Arguments, s: Any, t: Any) -> Any:
    distance, beta = np.abs(np.subtract(t, s)), np.float64(k["beta"])
    near_one = 0.5 * distance**2 / beta
    far = distance >= beta
    return (
        np.where(far | np.isnan(distance), distance - 0.5 * beta, near_one),
        np.where(far, distance + 0.5 * beta, near_one),
    )


def torch_says(k: Arguments, torch: Any) -> Any:
    smooth_l1_loss = torch.nn.functional.smooth_l1_loss
    return loss(k, smooth_l1_loss, k["self"], k["target"], beta=k["beta"])


SMOOTH_L1_LOSS = elementwise(
    "aclnnSmoothL1Loss",
    prototype=(
        "const aclTensor* self, const aclTensor* target, int64_t reduction, float beta, "
        "aclTensor* result"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1, "beta": 1.0},
    inputs=(In("self", normal()), In("target", near("self", 0.1))),
    output=Out(OUTPUT, shape=lambda k: k.reduced(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    factor=lambda k: k.share(*INPUTS),
    broadcast=(Setup("one-element", shapes={OUTPUT: (1,)}, attributes={"reduction": 2}),),
    kernel=promotion(*INPUTS),
    npu=aten("smooth_l1_loss", *_npu.LOSS, "beta"),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2), "beta": (1.0, 0.0, 0.3, 2.5)},
    mixed=mixed_floats(*INPUTS, output=OUTPUT),
    empty=tuple(
        Setup("one-empty", shapes={"self": one, "target": other}, attributes={"reduction": code})
        for one, other in (((1, 0), (2, 1)), ((), (0, 3)))
        for code in (0, 1, 2)
    ),
    edges=(
        crossed(EDGES),
        crossed(EDGES, attributes={"beta": INF}, note="no-end"),
        Setup("finite", values={"self": [1.0, 3.5, -0.25], "target": [0.0, 1, 0]}),
    ),
    halfway=halfway(
        {"self": tuple(n / 2 for n in SQUARES), "target": 0.0}, reduction=0, beta=1.0
    ),
    invalid=(
        *defects.nulls(*INPUTS, OUTPUT),
        *defects.dtypes(*INPUTS),
        *defects.no_bfloat16(*INPUTS),
        *defects.uncastable(OUTPUT),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        *defects.ranks(*INPUTS),
        *defects.shapes("self", (5, 3), blames=INPUTS),
        *defects.shapes("target", (5, 3), blames=INPUTS),
        *defects.shapes(OUTPUT, (4, 3), (1, 3, 4), ()),
        *defects.values("beta", -1.0, -INF, NAN),
        *defects.shapes(OUTPUT, (3, 4), (2,), base=Setup(attributes={"reduction": 1})),
        *defects.shapes(OUTPUT, (2, 3), base=Setup(base=(0, 3), attributes={"reduction": 2})),
    ),
    contradictions=(
        Contradiction(
            "F14", "shape of result", Setup(shapes={OUTPUT: (1, 1)}, attributes={"reduction": 1}),
            {"page, plugin": Refusal(), "source": ...}, "source",
        ),
    ),
)  # fmt: skip
