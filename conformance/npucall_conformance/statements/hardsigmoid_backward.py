"""aclnnHardsigmoidBackward [src:hardsigmoid]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BOOL, DOUBLE, INT32
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import choice, mixed, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Out, Setup, crossed, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import BEFORE_950
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

BOTH = ("grad_output", "self")
NAN, INF = reals.NAN, reals.INFINITY
SIXTH = 11184811 / 2**26
"""The FLOAT nearest to 1/6."""
GRADIENTS = (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN)


def scalar(_: Arguments, g: float, x: float) -> float:
    return g * SIXTH if -3 < x < 3 else 0.0  # 0 also where x is NaN


def vector(_: Arguments, g: Any, x: Any) -> Any:
    return np.where(np.abs(x) < 3, np.multiply(SIXTH, g), 0.0)


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.ops.aten.hardsigmoid_backward(k["grad_output"], k["self"])


HARDSIGMOID_BACKWARD = elementwise(
    "aclnnHardsigmoidBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    inputs=(
        In("grad_output", normal()),
        In("self", mixed(normal(2.5), choice(-3.0, 3.0, 0.0), 0.1)),
    ),
    output=Out("out", shape="self", dtype=promotion(*BOTH)),
    scalar=scalar,
    vector=vector,
    kernel=promotion(*BOTH),
    cost=0,
    npu=aten("hardsigmoid_backward", *_npu.BOTH),
    torch=torch_says,
    mixed=(*mixed_floats(*BOTH, output="out"), Setup(dtypes={"out": DOUBLE})),
    edges=(
        crossed({
            "grad_output": GRADIENTS,
            "self": (
                -3.0, 3.0, -3 + 2.0**-22, -3 - 2.0**-22, 3 + 2.0**-22, 2.75, 0.0, -0.0, -1.5,
                300.0, INF, -INF, NAN,
            ),
        }),
        # The largest FLOAT below 3, for which Ascend 950 gives 0.
        crossed(
            {"grad_output": GRADIENTS, "self": (3 - 2.0**-22,)},
            note="right-below-3", products=BEFORE_950,
        ),
    ),
    invalid=(
        *defects.nulls(*BOTH, "out"),
        *defects.dtypes(*BOTH),
        *defects.dtypes("self", found=INT32),
        *defects.no_bfloat16(*BOTH),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.ranks(*BOTH, "out"),
        *defects.shapes("self", (4, 3), (1, 4), (1, 3, 4)),
        *defects.shapes("grad_output", (4, 3), (1, 4), (), blames=("self",)),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4), blames=("self",)),
    ),
)  # fmt: skip
