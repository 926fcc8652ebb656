"""aclnnSoftMarginLoss [src:soft-margin-loss]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import loss
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import choice, mixed, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    Contradiction,
    In,
    Out,
    Refusal,
    Setup,
    crossed,
    mixed_floats,
    of_reductions,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("self", "target")
NAN, INF = reals.NAN, reals.INFINITY


def scalar(_: Arguments, s: float, t: float) -> float:
    margin = -(s * t)
    return max(margin, 0.0) + math.log1p(reals.exp(-abs(margin)))  # NaN stays, coming first


def vector(_: Arguments, s: Any, t: Any) -> Any:
    margin = np.multiply(-t, s)
    value = np.logaddexp(0.0, margin)
    return value, value * (1 + np.abs(margin))


def torch_says(k: Arguments, torch: Any) -> Any:
    return loss(k, torch.nn.functional.soft_margin_loss, k["self"], k["target"])


SOFT_MARGIN_LOSS = elementwise(
    "aclnnSoftMarginLoss",
    prototype="const aclTensor* self, const aclTensor* target, int64_t reduction, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1},
    unwarned={"reduction": (0, 1, 2)},
    inputs=(In("self", normal()), In("target", mixed(choice(-1, 1), normal()))),
    output=Out("out", shape=lambda k: k.reduced(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    factor=lambda k: k.share(*INPUTS),
    kernel=promotion(*INPUTS),
    npu=aten("soft_margin_loss", *_npu.LOSS),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=mixed_floats(*INPUTS, output="out"),
    empty=(
        *(
            Setup(
                "one-empty", shapes={"self": one, "target": other}, attributes={"reduction": code}
            )
            for one, other in (((1, 0), (2, 1)), ((), (0, 3)))
            for code in (0, 1, 2, 7)
        ),
    ),
    edges=(
        crossed({
            "self": (0.0, -0.0, 1.0, 80.0, -88.0, -300.0, 300.0, 1e-4, INF, -INF, NAN),
            "target": (1.0, -1.0, 0.5, 0.0, -0.0, INF, -INF, NAN),
        }),
        Setup("finite", values={"self": [-300.0, 2.0, 80.0], "target": [1.0, 1, -1]}),
        Setup("infinite", values={"self": [-INF, 2.0], "target": [1.0, 1]}),
    ),
    reductions=of_reductions(3, 7, -1, 2**40, 2**32 + 1),
    invalid=(
        *defects.nulls(*INPUTS, "out"),
        *defects.dtypes(*INPUTS, "out"),
        *defects.no_bfloat16(*INPUTS, "out"),
        *defects.ranks(*INPUTS),
        *defects.shapes("self", (5, 3), blames=INPUTS),
        *defects.shapes("target", (5, 3), blames=INPUTS),
        *defects.shapes("out", (4, 3), (1, 3, 4), ()),
        *defects.shapes("out", (1,), (3, 4), base=Setup(attributes={"reduction": 1})),
        *defects.shapes("out", (1, 1), base=Setup(attributes={"reduction": 7})),
    ),
    contradictions=(
        Contradiction(
            "F9", "reduction 7",
            Setup(values={"self": [0.0, 0.0], "target": [1.0, 1.0]}, attributes={"reduction": 7}),
            {"page": Refusal(), "source": 1.38629436}, "source",
        ),
        Contradiction(
            "F10", "a margin that overflows",
            Setup(values={"self": [-100.0], "target": [1.0]}, attributes={"reduction": 0}),
            {"Atlas A2, torch": [INF], "Ascend 950": [100.0]}, "Ascend 950",
        ),
    ),
)  # fmt: skip
