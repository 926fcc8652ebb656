"""aclnnLogSigmoid and aclnnLogSigmoidBackward [src:log-sigmoid]."""

from __future__ import annotations

from math import exp, log1p
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, INT32
from npucall_conformance.statements import _activations as shared
from npucall_conformance.statements.glu import opened
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Out, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import RANK_SHAPES
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B

INF, NAN = shared.INF, shared.NAN
BOTH = ("grad_output", "self")
COMMON: dict[str, Any] = {
    "takes": FLOATS_BUT_ON_310B,
    "legacy": ("Ascend910", "Ascend310P"),
    "kernel": dtype_of("self"),
    "rank_shapes": (*RANK_SHAPES, (1, 2, 1, 1, 2, 1, 1, 1, 3)),  # no rank is too high
}


def scalar(_: Arguments, x: float) -> float:
    return min(x, 0.0) - log1p(exp(-abs(x))) if x == x else NAN  # noqa: PLR0124


def vector(_: Arguments, x: Any) -> Any:
    return -np.logaddexp(0.0, -x)


def slope(_: Arguments, g: float, x: float) -> float:
    return g * reals.sigmoid(-x)


def slopes(_: Arguments, g: Any, x: Any) -> Any:
    return opened(-x) * g


LOG_SIGMOID = elementwise(
    "aclnnLogSigmoid",
    prototype="const aclTensor* self, aclTensor* out",
    inputs=(shared.numbers(3.0),),
    output=Out("out", "self", "self"),
    scalar=scalar,
    vector=vector,
    npu=aten("log_sigmoid", "self"),
    torch=lambda k, torch: torch.nn.functional.logsigmoid(k["self"]),
    edges=(shared.edges(80.0, -80.0),),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out"),
        *defects.no_bfloat16("self", "out"),
        *defects.dtypes("out", found=FLOAT16, blames=("self",)),
        *shared.shapes_of("out"),
    ),
    **COMMON,
)

LOG_SIGMOID_BACKWARD = elementwise(
    "aclnnLogSigmoidBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, const aclTensor* buffer, "
    "aclTensor* gradInput",
    inputs=(In("grad_output", normal()), In("self", normal(3.0)),
            In("buffer", normal(), dtypes=(FLOAT, INT32), read=False)),
    output=Out("grad_input", "self", "self"),
    scalar=lambda k, g, x, _: slope(k, g, x),
    vector=lambda k, g, x, _: slopes(k, g, x),
    npu="torch_npu has an empty buffer, where the suite gives one of the input's shape",
    torch=lambda k, torch: k["grad_output"] * torch.sigmoid(-k["self"]),
    edges=(crossed({
        "grad_output": (1.0, 0.0, -2.0, 300.0, NAN),
        "self": (0.0, 1.0, -1.0, 12.0, -12.0, 60.0, -60.0, 80.0, INF, -INF, NAN),
    }),),
    invalid=(
        *defects.nulls(*BOTH, "buffer", "grad_input"),
        *defects.dtypes(*BOTH),
        *defects.no_bfloat16(*BOTH),
        *defects.dtypes(*BOTH, found=FLOAT16),
        *shared.of_what_follows("self", "grad_input"),
        *defects.shapes("grad_output", (4, 3), (1, 4), ()),
        *defects.shapes("grad_input", (4, 3), (1, 3, 4), blames=("self",)),
    ),
    **COMMON,
)  # fmt: skip
