"""aclnnSoftMarginLossBackward [src:soft-margin-loss]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.errors import ShapeError
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import choice, mixed, normal, upstream
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup, crossed, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("grad_output", "self", "target")
NAN, INF = reals.NAN, reals.INFINITY


def scalar(k: Arguments, g: float, s: float, t: float) -> float:
    power = reals.exp(-s * t, k.top)
    return reals.divide(reals.capped(-t * power, k.top), 1 + power) * g * k.mean(*INPUTS)


def vector(k: Arguments, g: Any, s: Any, t: Any) -> Any:
    power = capped(np.exp(-np.multiply(s, t)), k.top)
    upstream = g / np.broadcast(g, s, t).size if k["reduction"] == 1 else g
    return -upstream * (capped(t * power, k.top) / (power + 1.0))


def torch_says(k: Arguments, torch: Any) -> Any:
    if k["self"].shape != k.shape(*INPUTS):
        return None  # its mean divides by the elements of self
    backward = torch.ops.aten.soft_margin_loss_backward
    return backward(k["grad_output"], k["self"], k["target"], k["reduction"])


SOFT_MARGIN_LOSS_BACKWARD = elementwise(
    "aclnnSoftMarginLossBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend310P", "Ascend310B"),
    defaults={"reduction": 1},
    inputs=(
        In("grad_output", upstream(*INPUTS)),
        In("self", normal()),
        In("target", mixed(choice(-1, 1), normal())),
    ),
    output=Out("out", shape=lambda k: k.shape(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    kernel=promotion(*INPUTS),
    npu=aten("soft_margin_loss_backward", *_npu.LOSS_GRADIENT),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=mixed_floats(*INPUTS, output="out"),
    empty=(Setup("one-empty", shapes={"grad_output": (), "self": (1, 0), "target": (2, 1)}),),
    edges=(
        # In FLOAT e^88 is a number and e^89 infinite, which makes NaN; e^-87 is normal. What
        # underflows has no edge here: an infinite gradient times it is NaN, in float64 infinite.
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, NAN),
            "self": (0.0, -0.0, 1.0, 87.0, -88.0, -89.0, INF, -INF, NAN),
            "target": (1.0, 0.5, 0.0, -0.0, -0.5, INF, -INF, NAN),
        }),
        crossed({"grad_output": (1.0, -2.0), "self": (-87.0, 88.0, 89.0, INF), "target": (-1.0,)}),
    ),
    empty_before="reduction-3",
    invalid=(
        *defects.nulls(*INPUTS, "out"),
        *defects.dtypes(*INPUTS, "out"),
        *defects.no_bfloat16(*INPUTS, "out"),
        *defects.ranks(*INPUTS),
        *defects.shapes("grad_output", (5, 3), blames=INPUTS[:2]),
        *defects.shapes("self", (5, 3), blames=INPUTS[:2]),
        *defects.shapes("target", (5, 3), blames=INPUTS),
        Invalid("out-transposed", {"out": {"shape": (4, 3)}}, ("out",), ShapeError),
        Invalid("out-of-higher-rank", {"out": {"shape": (1, 3, 4)}}, ("out",), ShapeError),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
    ),
)  # fmt: skip
