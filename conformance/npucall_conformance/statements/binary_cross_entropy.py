"""aclnnBinaryCrossEntropy [src:binary-cross-entropy]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16
from npucall.errors import ShapeError
from npucall_conformance.statements._torch import loss
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import probabilities, uniform
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
)
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

TENSORS = ("self", "target", "out", "weight")
NAN, INF = reals.NAN, reals.INFINITY
LEAST = -100.0
INNER_NULLPTR = 561103
S_EDGES = (0.0, -0.0, 1.0, 0.5, 1e-4, -1.0, 2.0, INF, -INF, NAN)


def scalar(_: Arguments, s: float, t: float, w: float | None) -> float:
    one, other = max(reals.log(s), LEAST), max(reals.log(1 - s), LEAST)  # NaN stays, coming first
    loss = -(t * one + (1 - t) * other)
    return loss if w is None else w * loss


def vector(_: Arguments, s: Any, t: Any, w: Any) -> Any:
    weight = 1.0 if w is None else w
    one, other = (np.clip(np.log(each), LEAST, None) for each in (s, 1 - s))
    value = -weight * (t * one - (t - 1) * other)
    return value, np.abs(weight) * (np.abs(t * one) + np.abs((1 - t) * other))


def torch_says(k: Arguments, torch: Any) -> Any:
    cross_entropy = torch.nn.functional.binary_cross_entropy
    return loss(k, cross_entropy, k["self"], k["target"], weight=k["weight"])


BINARY_CROSS_ENTROPY = elementwise(
    "aclnnBinaryCrossEntropy",
    prototype=(
        "const aclTensor* self, const aclTensor* target, const aclTensor* weight, "
        "int64_t reduction, aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1},
    inputs=(
        In("self", probabilities()),
        In("target", probabilities(0, 1)),
        In("weight", uniform(0.1, 2), optional=True),
    ),
    output=Out("out", shape=lambda k: k.reduced("self"), dtype="self"),
    scalar=scalar,
    vector=vector,
    space=("self",),
    factor=lambda k: k.share("self"),
    broadcast=(
        Setup("no-weight", base=(3, 4), absent=("weight",)),
        Setup("one-element", base=(1, 1), shapes={"out": ()}, attributes={"reduction": 0}),
        Setup("out-of-rank-2", shapes={"out": (1, 1)}, attributes={"reduction": 2}),
    ),
    kernel=dtype_of("self"),
    npu=aten("binary_cross_entropy", "self", "target", "weight", "reduction"),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    empty=tuple(
        Setup("any-out", base=(0, 3), shapes={"out": (2, 3)}, attributes={"reduction": code},
              filled=NAN if code == 1 else 0.0)
        for code in (0, 1, 2)
    ),
    edges=(
        crossed(
            {"self": S_EDGES, "target": (0.0, 1.0, 0.25, -1.5, INF, NAN)}, absent=("weight",)
        ),
        crossed({"self": S_EDGES, "target": (0.0, 1.0), "weight": (1.0, 0.0, -300.0, INF, NAN)}),
        Setup("finite", values={"self": [0.0, 1.0, 0.25, 1e-4], "target": [1.0, 0, 0.5, 0]},
              absent=("weight",)),
    ),
    empty_before="shape-out-4x3",
    invalid=(
        *defects.nulls("self", "target", "out"),
        *defects.dtypes(*TENSORS),
        *defects.no_bfloat16(*TENSORS),
        *defects.dtypes("target", "weight", "out", found=FLOAT16, blames=("self",)),
        *defects.shapes("target", (4, 3), (1, 4), blames=("self",)),
        *defects.shapes("weight", (1, 4), (2, 3, 4)),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        *defects.shapes("out", (4, 3), (1, 3, 4), ()),
        *defects.shapes("out", (3, 4), (2,), base=Setup(attributes={"reduction": 1})),
        Invalid(
            "self-smaller", {"self": {"shape": (1, 4)}}, ("self",), ShapeError, alone=True,
        ),
    ),
    contradictions=(
        Contradiction(
            "F6", "dtypes that differ without a weight",
            Setup(dtypes={"target": FLOAT16}, absent=("weight",)),
            {"page": Refusal(), "source": Refusal(INNER_NULLPTR)}, "page",
        ),
        Contradiction(
            "F7", "a weight of another shape", Setup(shapes={"weight": (1, 4)}),
            {"page": Refusal(), "torch": ...}, "page",
        ),
    ),
)  # fmt: skip
