"""aclnnBinaryCrossEntropyWithLogits [src:bce-with-logits]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BOOL, COMPLEX64, DOUBLE, FLOAT16, INT32
from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import loss
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal, probabilities, uniform
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import (
    Contradiction,
    In,
    Out,
    Refusal,
    Setup,
    crossed,
    mixed_floats,
)
from npucall_conformance.stating.promotion import common_type
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("self", "target", "weight", "pos_weight")
WEIGHTS = ("weight", "pos_weight")
LISTED = ("self", "target", "out")
NAN, INF = reals.NAN, reals.INFINITY
EDGES = {
    "self": (0.0, -0.0, 1.0, 80.0, -80.0, INF, -INF, NAN),
    "target": (0.0, 1.0, 0.25, -1.5, INF, NAN),
}


def promoted(k: Arguments, weight: Any) -> Any:
    """A weight in what self and target promote to, to which it is rounded."""
    dtype = common_type(k.dtypes["self"], k.dtypes["target"])
    return weight if dtype is None else np.asarray(weight).astype(dtype.numpy).astype(np.float64)


def scalar(k: Arguments, s: float, t: float, w: float | None, p: float | None) -> float:
    logarithm = min(s, 0.0) - math.log1p(reals.exp(-abs(s)))  # NaN stays, coming first
    if p is not None:
        logarithm *= 1 + (float(promoted(k, p)) - 1) * t
    loss = (1 - t) * s - logarithm
    return loss if w is None else loss * float(promoted(k, w))


def vector(k: Arguments, s: Any, t: Any, w: Any, p: Any) -> Any:
    entropy = -np.minimum(s, 0.0) + np.log1p(np.exp(-np.abs(s)))
    size = entropy
    if p is not None:
        more = promoted(k, p) - 1
        entropy, size = entropy * (1.0 + t * more), entropy * (1.0 + np.abs(t * more))
    weight = 1.0 if w is None else promoted(k, w)
    straight = np.subtract(1.0, t) * s
    return (straight + entropy) * weight, (np.abs(straight) + size) * np.abs(weight)


def torch_says(k: Arguments, torch: Any) -> Any:
    with_logits = torch.nn.functional.binary_cross_entropy_with_logits
    more = {"weight": k["weight"], "pos_weight": k["pos_weight"]}
    return loss(k, with_logits, k["self"], k["target"], **more)


BINARY_CROSS_ENTROPY_WITH_LOGITS = elementwise(
    "aclnnBinaryCrossEntropyWithLogits",
    prototype=(
        "const aclTensor* self, const aclTensor* target, const aclTensor* weightOptional, "
        "const aclTensor* posWeightOptional, int64_t reduction, aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1},
    inputs=(
        In("self", normal(2)),
        In("target", probabilities(0, 1)),
        In("weight", uniform(0.1, 2), optional=True),
        In("pos_weight", uniform(0.1, 4), optional=True),
    ),
    output=Out("out", shape=lambda k: k.reduced("self"), dtype="target"),
    scalar=scalar,
    vector=vector,
    space=("self",),
    expands=WEIGHTS,
    factor=lambda k: k.share("self"),
    broadcast=(
        *(
            Setup("-".join(("no", *absent)).replace("_", "-"), base=(3, 4), absent=absent)
            for absent in (("weight",), ("pos_weight",), WEIGHTS)
        ),
        Setup("out-of-rank-2", shapes={"out": (1, 1)}, attributes={"reduction": 2}),
    ),
    npu=_npu.WITH_LOGITS,
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=(
        *mixed_floats(*INPUTS),
        *(Setup(dtypes={name: each}) for name in WEIGHTS for each in (DOUBLE, INT32, BOOL)),
        Setup(
            "beyond-float16", dtypes={"self": FLOAT16},
            values={"self": [60000.0, 60000.0], "target": [0.0, 0.0]},
            absent=WEIGHTS, attributes={"reduction": 2},
        ),
    ),
    empty=tuple(
        Setup("any-shapes", base=(0, 3), attributes={"reduction": code},
              shapes={"out": (2, 3), "weight": (4, 5), "pos_weight": (2,)},
              filled=NAN if code == 1 else 0.0)
        for code in (0, 1, 2)
    ),
    edges=(
        crossed(EDGES, absent=WEIGHTS),
        crossed({"self": EDGES["self"], "weight": (1.0, 0.0, -300.0, INF, NAN)},
                absent=("pos_weight",)),
        crossed({**EDGES, "weight": (1.0, 0.0), "pos_weight": (1.0, 0.0, 3.0, INF, NAN)}),
        Setup("finite", values={"self": [80.0, -80.0, 0.0], "target": [0.0, 1, 0.5]},
              absent=WEIGHTS),
    ),
    empty_spares=("shape-weight", "shape-pos_weight", "shape-out", "dtype-complex64"),
    invalid=(
        *defects.nulls(*LISTED),
        *defects.dtypes(*LISTED),
        *defects.no_bfloat16(*LISTED),
        *defects.dtypes("out", found=FLOAT16),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        *defects.ranks(*INPUTS),
        *defects.shapes("self", (4, 3), (1, 4), blames=("self",)),
        *defects.shapes("target", (4, 3), (1, 4), blames=("self",)),
        *defects.shapes("weight", (5, 3), (2, 3, 4)),
        *defects.shapes("pos_weight", (5, 3), (2, 3, 4)),
        *defects.shapes("out", (4, 3), (1, 3, 4), ()),
        *defects.shapes("out", (3, 4), (2,), base=Setup(attributes={"reduction": 1})),
        *defects.dtypes(*WEIGHTS, found=COMPLEX64),
    ),
    contradictions=(
        Contradiction(
            "F8", "a weight larger than target", Setup(shapes={"weight": (2, 3, 4)}),
            {"page": Refusal(), "source": ...}, "page",
        ),
    ),
)  # fmt: skip
