"""aclnnKlDiv [src:kl-div]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import INT32
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import log_probabilities, probabilities
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.npu import within
from npucall_conformance.stating.parts import (
    Contradiction,
    In,
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
TENSORS = (*INPUTS, "out")
NAN, INF = reals.NAN, reals.INFINITY
BATCHMEAN = 3
REDUCED = Setup(attributes={"reduction": 1})


def scalar(k: Arguments, s: float, t: float) -> float:
    if k["log_target"]:
        return reals.exp(t, k.top) * (t - s)
    return reals.capped(t * ((reals.log(t) if t != 0 else 0.0) - s), k.top)


def vector(k: Arguments, s: Any, t: Any) -> Any:
    logarithm = t if k["log_target"] else np.log(t + (t == 0))
    weight = capped(np.exp(t), k.top) if k["log_target"] else t
    value = np.multiply(weight, logarithm - s)
    value = value if k["log_target"] else capped(value, k.top)
    return value, np.abs(weight) * (np.abs(logarithm) + np.abs(s))


def factor(k: Arguments) -> float:
    """What a sum is multiplied by; of nothing, a batchmean asks whether ``self`` has rows."""
    if k["reduction"] != BATCHMEAN:
        return k.share(*INPUTS)
    if 0 in (k["self"].size, k["target"].size):
        return INF if k["self"].shape[:1] == (0,) else 1.0
    return 1 / k.first(*INPUTS)


def torch_says(k: Arguments, torch: Any) -> Any:
    kl_div = torch.nn.functional.kl_div
    elements = kl_div(k["self"], k["target"], reduction="none", log_target=k["log_target"])
    return elements.sum() * factor(k) if k["reduction"] else elements  # torch warns of its mean


KL_DIV = elementwise(
    "aclnnKlDiv",
    prototype=(
        "const aclTensor* self, const aclTensor* target, int64_t reduction, bool logTarget, "
        "aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1, "log_target": False},
    inputs=(In("self", log_probabilities()), In("target", probabilities())),
    output=Out("out", shape=lambda k: k.reduced(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    factor=factor,
    broadcast=(
        Setup("out-of-rank-2", shapes={"out": (1, 1)}, attributes={"reduction": 2}),
        Setup("out-of-rank-1", shapes={"out": (1,)}, attributes={"reduction": BATCHMEAN}),
    ),
    kernel=promotion(*INPUTS),
    npu=within(_npu.KL_DIV, "reduction"),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2, BATCHMEAN), "log_target": (False, True)},
    mixed=mixed_floats(*INPUTS, output="out"),
    empty=(
        *(
            Setup("one-empty", shapes={"self": one, "target": other}, attributes={"reduction": r})
            for one, other in (((2, 1), (2, 0)), ((0, 3), (1, 3)), ((1, 3), (0, 3)), ((), (0,)))
            for r in (0, 1, 2, BATCHMEAN)
        ),
        *(
            Setup("apart", shapes={"self": (2, 0), "target": (3,)}, attributes={"reduction": r},
                  filled=filled)
            for r, filled in ((1, NAN), (2, 0.0), (BATCHMEAN, 0.0))
        ),
        *(
            Setup("out-of-rank-2", base=(0, 2), shapes={"out": (1, 1)},
                  attributes={"reduction": r}, filled=filled)
            for r, filled in ((1, NAN), (2, 0.0), (BATCHMEAN, NAN))
        ),
    ),
    edges=(
        immense({"self": 1e20, "target": 1e20}, alone=True, log_target=False),
        crossed({
            "self": (-1.0, 0.0, 0.5, 300.0, INF, -INF, NAN),
            "target": (0.0, -0.0, -1.5, 0.25, 1.0, 12.0, 89.0, 300.0, 1e-4, INF, -INF, NAN),
        }),
        crossed({"self": (-1.0, 2.0), "target": (0.0, 0.25, 5.0)}, note="finite"),
        crossed({"self": (-1.0, -2.0), "target": (0.25, INF)}, note="infinite"),
    ),
    halfway=halfway(
        {"self": (-256.0, -1.0), "target": 1.0}, (2,), reduction=2, log_target=False
    ),
    empty_before="shape-self-5x3",
    invalid=(
        *defects.nulls(*TENSORS),
        *defects.dtypes(*INPUTS),
        *defects.dtypes("out", found=INT32),
        *defects.dtypes("out"),
        *defects.no_bfloat16(*TENSORS),
        *defects.ranks(*INPUTS),
        *defects.values("reduction", 4, 7, -1, 2**32 + 1, block="reduction"),
        *defects.shapes("out", (2, 3), base=Setup(base=(0, 3), attributes={"reduction": 1})),
        *defects.shapes("self", (5, 3), blames=INPUTS),
        *defects.shapes("target", (5, 3), blames=INPUTS),
        *defects.shapes("out", (4, 3), (1, 3, 4), ()),
        *defects.shapes("out", (3, 4), (2,), base=REDUCED),
    ),
    contradictions=(
        Contradiction(
            "F1", "a target of 0",
            Setup(
                values={"self": [-1.0], "target": [0.0]},
                attributes={"reduction": 0, "log_target": False},
            ),
            {"page": [NAN], "kernels, torch": [0.0]}, "kernels, torch",
        ),
        Contradiction(
            "F2", "divisor of batchmean",
            Setup(
                values={"self": [[0.0, 0]], "target": [[1.0, 2], [3, 4], [5, 6]]},
                attributes={"reduction": BATCHMEAN, "log_target": False},
            ),
            {"page, torch": 29.02505505, "source": 9.67501835}, "source",
        ),
        Contradiction(
            "F3", "reduction 7", Setup(attributes={"reduction": 7}),
            {"forward": Refusal(), "backward": ...}, "forward",
        ),
        Contradiction(
            "F4", "shape of out", Setup(shapes={"out": (1, 1)}, attributes={"reduction": 1}),
            {"page, plugin": Refusal(), "source": ...}, "source",
        ),
    ),
)  # fmt: skip
