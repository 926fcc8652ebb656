"""aclnnMseLoss [src:mse-loss]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16, INT8, UINT16
from npucall.errors import DTypeError
from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import loss
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import near, normal
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    SQUARES,
    Contradiction,
    In,
    Invalid,
    Out,
    Refusal,
    Setup,
    crossed,
    halfway,
    immense,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("self", "target")
NAN, INF = reals.NAN, reals.INFINITY


def scalar(k: Arguments, s: float, t: float) -> float:
    return reals.capped((s - t) * (s - t), k.top)


def vector(k: Arguments, s: Any, t: Any) -> Any:
    return capped(np.square(np.subtract(t, s)), k.top)


def torch_says(k: Arguments, torch: Any) -> Any:
    return loss(k, torch.nn.functional.mse_loss, k["self"], k["target"])


MSE_LOSS = elementwise(
    "aclnnMseLoss",
    prototype="const aclTensor* self, const aclTensor* target, int64_t reduction, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1},
    inputs=(In("self", normal()), In("target", near("self", 0.1))),
    output=Out("out", shape=lambda k: k.reduced(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    factor=lambda k: k.share(*INPUTS),
    kernel=promotion(*INPUTS),
    npu=aten("mse_loss", *_npu.LOSS),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=mixed_floats(*INPUTS, output="out"),
    empty=tuple(
        Setup("one-empty", shapes={"self": one, "target": other}, attributes={"reduction": code})
        for one, other in (((1, 0), (2, 1)), ((), (0, 3)))
        for code in (0, 1, 2)
    ),
    edges=(
        immense({"self": 1e20, "target": 0.0}, alone=True),
        crossed({
            "self": (0.0, -0.0, 1.0, -2.5, 300.0, INF, -INF, NAN),
            "target": (0.0, -0.0, 1.0, 1e-4, INF, -INF, NAN),
        }),
        # 90000 is beyond FLOAT16, but not its mean: nothing is rounded before the sum.
        Setup("mean-brings-back", values={"self": [300.0, 0, 0], "target": [0.0, 0, 0]}),
        Setup("infinite", values={"self": [1.0, 2.0], "target": [0.0, INF]}),
    ),
    halfway=halfway({"self": SQUARES, "target": 0.0}, reduction=0),
    invalid=(
        *defects.nulls(*INPUTS, "out"),
        *defects.dtypes("target", found=UINT16, blames=INPUTS),
        *defects.dtypes(*INPUTS, blames=INPUTS),
        Invalid(
            "integer-self", {"self": {"dtype": INT8}, "target": {"dtype": FLOAT16}}, ("self",),
            DTypeError,
        ),
        Invalid(
            "integer-target", {"self": {"dtype": FLOAT16}, "target": {"dtype": INT8}}, ("target",),
            DTypeError,
        ),
        *defects.dtypes("out"),
        *defects.no_bfloat16("out"),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        *defects.ranks(*INPUTS),
        *defects.shapes("self", (5, 3), blames=INPUTS),
        *defects.shapes("target", (5, 3), blames=INPUTS),
        *defects.shapes("out", (4, 3), (1, 3, 4), ()),
        *defects.shapes("out", (1,), (3, 4), base=Setup(attributes={"reduction": 1})),
    ),
    contradictions=(
        Contradiction(
            "F15", "rank 0", Setup(base=()), {"page": Refusal(), "source": ...}, "source"
        ),
    ),
)  # fmt: skip
