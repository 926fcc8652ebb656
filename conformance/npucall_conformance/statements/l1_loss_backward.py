"""aclnnL1LossBackward [src:l1-loss-backward]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BOOL, FLOAT16, FLOATS, INT8, INT32, UINT16
from npucall.errors import ShapeError
from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import gradient
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import near, normal, upstream
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    Contradiction,
    In,
    Invalid,
    Out,
    Refusal,
    Setup,
    crossed,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE, INTEGERS

INPUTS = ("grad_output", "self", "target")
NAN, INF = reals.NAN, reals.INFINITY
OUTPUT = "grad_input"
PAIR = ("grad_output", "self")


def scalar(k: Arguments, g: float, s: float, t: float) -> float:
    sign = 1.0 if s > t else -1.0 if s < t else 0.0
    return sign * (g * k.mean(*INPUTS))


def vector(k: Arguments, g: Any, s: Any, t: Any) -> Any:
    apart = np.where(np.isnan(s) | np.isnan(t) | (s == t), 0.0, np.copysign(1.0, s - t))
    return apart * g * k.mean(*INPUTS)


def torch_says(k: Arguments, torch: Any) -> Any:
    if len({tensor.shape for tensor in (k["self"], k["target"], k["grad_output"])}) > 1:
        return None
    l1_loss = torch.nn.functional.l1_loss
    upstream = k["grad_output"] * k.mean(*INPUTS)
    return gradient(torch, lambda s: l1_loss(s, k["target"], reduction="none"), k["self"], upstream)


L1_LOSS_BACKWARD = elementwise(
    "aclnnL1LossBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, aclTensor* gradInput"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1},
    inputs=(In("grad_output", upstream(*INPUTS)), In("self", normal()), In("target", near("self"))),
    output=Out(OUTPUT, shape=lambda k: k.shape(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    kernel=promotion(*INPUTS),
    cost=lambda k: 4 if k.scaled else 0,
    npu=_npu.gradient_of("self", aten("l1_loss", *_npu.LOSS)),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=(
        *mixed_floats(*INPUTS, output=OUTPUT),
        *(
            Setup("promoted", (2,), dtypes={"grad_output": one, "self": one, "target": other})
            for one in FLOATS
            for other in (*FLOATS, *INTEGERS, BOOL)
        ),
        *(Setup(dtypes={name: each}) for name in INPUTS for each in (INT8, INT32)),
        Setup(
            "compared-after-the-cast",
            dtypes={"self": FLOAT16, "target": INT32, "grad_output": FLOAT16},
            values={"self": [2048.0, 2048.0], "target": [2049.0, 2051.0], "grad_output": [1.0, 2]},
        ),
    ),
    edges=(
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, NAN),
            "self": (0.0, -0.0, 1.0, INF, -INF, NAN),
            "target": (0.0, -0.0, 1.0, INF, -INF, NAN),
        }),
    ),
    invalid=(
        *defects.nulls(*INPUTS, OUTPUT),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        *defects.dtypes(*PAIR, found=UINT16, blames=PAIR),
        *defects.dtypes("target", found=UINT16, blames=INPUTS),
        *defects.uncastable(OUTPUT),
        *defects.dtypes(*INPUTS, blames=INPUTS),
        *defects.ranks("self", "target", "grad_output", OUTPUT),
        *defects.shapes("self", (5, 3), blames=("self", "grad_output")),
        *defects.shapes("grad_output", (5, 3), blames=("self", "grad_output")),
        *defects.shapes("target", (5, 3), blames=("self", "grad_output", "target")),
        Invalid("output-transposed", {OUTPUT: {"shape": (4, 3)}}, (OUTPUT,), ShapeError),
        Invalid("output-larger", {OUTPUT: {"shape": (1, 3, 4)}}, (OUTPUT,), ShapeError),
    ),
    contradictions=(
        Contradiction(
            15, "L1LossBackward on Atlas training and inference",
            Setup(products=("Ascend910", "Ascend310P")),
            {"README": Refusal(), "page": ...}, "page",
        ),
        Contradiction(
            16, "shape of gradInput", Setup(shapes={OUTPUT: (2, 3, 4)}),
            {"README": ..., "source": Refusal()}, "source",
        ),
        Contradiction(
            17, "an integer among floats", Setup(dtypes={"target": INT32}),
            {"documents": Refusal(), "source": ...}, "source",
        ),
        Contradiction(
            19, "divisor of mean where target is larger",
            Setup(
                values={"grad_output": [[6]], "self": [[5, 5]], "target": [[1, 2], [3, 4], [9, 9]]},
                attributes={"reduction": 1},
            ),
            {
                "kernel": [[1, 1], [1, 1], [-1, -1]],
                "test executor": [[3, 3], [3, 3], [-3, -3]],
            },
            "kernel",
        ),
        Contradiction(
            20, "sign of NaN",
            Setup(
                values={"grad_output": [1, 1], "self": [NAN, 1], "target": [0, NAN]},
                attributes={"reduction": 0},
            ),
            {"Ascend 950, torch": [0, 0], "TBE of A2 and A3": [-1, -1]}, "Ascend 950, torch",
        ),
    ),
)  # fmt: skip
