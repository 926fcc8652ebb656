"""aclnnBinaryCrossEntropyWithLogitsTargetBackward [src:bce-with-logits]."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import FLOATS
from npucall_conformance.statements import _with_logits as shared
from npucall_conformance.statements._torch import gradient
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import Out, mixed_floats
from npucall_conformance.stating.tables import on

OUTPUT = "grad_target"


def log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def scalar(k: Arguments, g: float, s: float, _: float, *weights: float | None) -> float:
    w, p = (1.0 if weight is None else weight for weight in weights)
    return (log_sigmoid(-s) - p * log_sigmoid(s)) * (g * w) * k.mean("target")


def vector(k: Arguments, g: Any, s: Any, t: Any, *weights: Any) -> Any:
    w, p = (1.0 if weight is None else weight for weight in weights)
    upstream = g * w / (t.size if k["reduction"] == 1 else 1)
    negative, positive = np.logaddexp(0.0, s), p * np.logaddexp(0.0, -s)
    return (positive - negative) * upstream, (np.abs(positive) + negative) * np.abs(upstream)


def torch_says(k: Arguments, torch: Any) -> Any:
    loss = shared.loss(k, torch)
    upstream = k["grad_output"] * k.mean("target")
    return gradient(torch, lambda target: loss(k["self"], target), k["target"], upstream)


BINARY_CROSS_ENTROPY_WITH_LOGITS_TARGET_BACKWARD = elementwise(
    "aclnnBinaryCrossEntropyWithLogitsTargetBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weightOptional, const aclTensor* posWeightOptional, int64_t reduction, "
        "aclTensor* gradTarget"
    ),
    takes=on(("Ascend910B", "Ascend910_93"), *FLOATS),
    legacy=(),
    defaults={"reduction": 1},
    inputs=tuple(replace(each, read=each.name != "target") for each in shared.DRAWN),
    output=Out(OUTPUT, shape="target", dtype="target"),
    scalar=scalar,
    vector=vector,
    space=("self",),
    expands=shared.EXPANDS,
    broadcast=shared.SOME_ABSENT,
    npu="torch_npu has no gradient of the target",
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=mixed_floats(*shared.INPUTS),
    empty=shared.EMPTY,
    edges=shared.EDGES,
    empty_spares=("shape-",),
    invalid=shared.invalid(OUTPUT),
)
