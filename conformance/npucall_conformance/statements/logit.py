"""aclnnLogit [src:logit]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16
from npucall.errors import AclnnStatus
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import mixed, probabilities, uniform
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Contradiction, In, Out, Setup, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
LOW, HIGH = np.float32(0.35), np.float32(1) - np.float32(0.35)
ENDS = tuple(
    float(x)
    for end in (LOW, HIGH)
    for x in (end, np.nextafter(end, np.float32(0)), np.nextafter(end, np.float32(1)))
)
"""Both ends in FLOAT, and the numbers beside them."""
EDGES = {
    "input": (0.0, -0.0, 1.0, 0.5, 0.125, 0.875, 0.35, 0.1, 0.9, 1e-4, -1e-4, 2.0, INF, -INF, NAN)
}


def ends(k: Arguments) -> tuple[float, float] | None:
    """What the input is clamped to; in FLOAT, as eps is."""
    margin = np.float32(k["eps"])
    return (float(margin), float(np.float32(1) - margin)) if margin >= 0 else None


def scalar(k: Arguments, x: float) -> float:
    clamped = ends(k)
    if clamped:
        low, high = clamped
        x = low if x < low else min(x, high)
    return reals.log(x) - reals.log(1 - x)


def vector(k: Arguments, x: Any) -> Any:
    clamped = ends(k)
    if clamped:
        x = np.select([x < clamped[0], x > clamped[1]], clamped, x)
    return np.log(x / (1 - x)), np.abs(np.log(x)) + np.abs(np.log1p(-x))


def torch_says(k: Arguments, torch: Any) -> Any:
    clamped = ends(k)
    return torch.logit(k["input"].clamp(*clamped) if clamped else k["input"])


LOGIT = elementwise(
    "aclnnLogit",
    prototype="const aclTensor* input, double eps, const aclTensor* out",
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    defaults={"eps": -1.0},
    inputs=(In("input", mixed(probabilities(), uniform(-0.5, 1.5))),),
    output=Out("out", shape="input", dtype="input"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("input"),
    npu=aten("logit", "input", "eps"),
    torch=torch_says,
    attributes={"eps": (0.125, -1.0, 0.0, 0.25, 1e-3)},
    edges=(
        crossed(
            {"input": ENDS}, attributes={"eps": 0.35}, note="at-the-ends", only=(FLOAT,),
            telling=True,
        ),
        crossed(EDGES),
        *(
            crossed(EDGES, attributes={"eps": eps}, note=note)
            for note, eps in (
                ("a-point", 0.5), ("crossed-ends", 0.75), ("one", 1.0), ("beyond-one", 1.5),
                ("no-number", NAN), ("rounds-to-minus-0", -1e-60),
            )
        ),
    ),
    invalid=(
        *defects.nulls("input", "out"),
        *defects.dtypes("input"),
        *defects.no_bfloat16("input"),
        *defects.dtypes("out"),
        *defects.dtypes("out", found=FLOAT16, alone=True),
        *defects.shapes("out", (4, 3), (1, 3, 4), status=TILING),
    ),
    contradictions=(
        Contradiction(
            "F24", "eps 1", Setup(values={"input": [0.5, 1.0]}, attributes={"eps": 1.0}),
            {"page": [INF, INF], "source, torch": [INF, -INF]}, "source, torch",
        ),
    ),
)  # fmt: skip
