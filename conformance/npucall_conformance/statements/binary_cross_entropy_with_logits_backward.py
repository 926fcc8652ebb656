"""aclnnBinaryCrossEntropyWithLogitsBackward [src:bce-with-logits]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall_conformance.statements import _npu
from npucall_conformance.statements import _with_logits as shared
from npucall_conformance.statements._torch import gradient
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import Out, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE


def scalar(k: Arguments, g: float, s: float, t: float, *weights: float | None) -> float:
    w, p = weights
    slope = reals.sigmoid(s)
    slope = slope - t if p is None else (p * t + 1 - t) * slope - p * t
    return slope * (g if w is None else g * w) * k.mean("self")


def vector(k: Arguments, g: Any, s: Any, t: Any, *weights: Any) -> Any:
    w, p = weights
    upstream = g * (1.0 if w is None else w) / (s.size if k["reduction"] == 1 else 1)
    sigmoid = np.exp(-np.logaddexp(0.0, -s))
    if p is None:
        return (sigmoid - t) * upstream, (sigmoid + np.abs(t)) * np.abs(upstream)
    size = np.abs(p * t) * (sigmoid + 1) + (1 + np.abs(t)) * sigmoid
    return (sigmoid * (p * t + (1 - t)) - p * t) * upstream, size * np.abs(upstream)


def torch_says(k: Arguments, torch: Any) -> Any:
    loss = shared.loss(k, torch)
    upstream = k["grad_output"] * k.mean("self")
    return gradient(torch, lambda logits: loss(logits, k["target"]), k["self"], upstream)


BINARY_CROSS_ENTROPY_WITH_LOGITS_BACKWARD = elementwise(
    "aclnnBinaryCrossEntropyWithLogitsBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weightOptional, const aclTensor* posWeightOptional, int64_t reduction, "
        "aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1},
    inputs=shared.DRAWN,
    output=Out("out", shape="self", dtype="target"),
    scalar=scalar,
    vector=vector,
    space=("self",),
    expands=shared.EXPANDS,
    broadcast=shared.SOME_ABSENT,
    kernel=promotion(*shared.INPUTS),
    npu=_npu.gradient_of("self", _npu.WITH_LOGITS),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=mixed_floats(*shared.INPUTS),
    empty=shared.EMPTY,
    edges=shared.EDGES,
    empty_spares=("shape-",),
    invalid=shared.invalid("out", *defects.no_bfloat16(*shared.INPUTS, "out")),
)
