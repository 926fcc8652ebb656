"""aclnnMseLossBackward [src:mse-loss]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT16
from npucall.errors import ShapeError
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import near, normal, upstream
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    HALFWAY,
    PAIRS_OF_FLOATS,
    In,
    Invalid,
    Out,
    Setup,
    crossed,
    halfway,
    immense,
)
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("grad_output", "self", "target")
NAN, INF = reals.NAN, reals.INFINITY


def scalar(k: Arguments, g: float, s: float, t: float) -> float:
    return 2 * (s - t) * g * k.mean("self")  # also where the others stretch self


def vector(k: Arguments, g: Any, s: Any, t: Any) -> Any:
    doubled = g * (2.0 / s.size if k["reduction"] == 1 else 2.0)
    return np.subtract(s, t) * doubled, (np.abs(s) + np.abs(t)) * np.abs(doubled)


def torch_says(k: Arguments, torch: Any) -> Any:
    backward = torch.ops.aten.mse_loss_backward
    return backward(k["grad_output"], k["self"], k["target"], k["reduction"])


MSE_LOSS_BACKWARD = elementwise(
    "aclnnMseLossBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "int64_t reduction, aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend910", "Ascend310B"),
    defaults={"reduction": 1},
    inputs=(
        In("grad_output", upstream("self")), In("self", normal()), In("target", near("self", 0.1))
    ),
    output=Out("out", shape=lambda k: k.shape(*INPUTS), dtype="self"),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    kernel=dtype_of("self"),
    npu=aten("mse_loss_backward", *_npu.LOSS_GRADIENT),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=tuple(
        Setup(dtypes={**dict.fromkeys(INPUTS, one), "out": other}) for one, other in PAIRS_OF_FLOATS
    ),
    empty=(Setup("one-empty", shapes={"grad_output": (), "self": (1, 0), "target": (2, 1)}),),
    edges=(
        immense({"grad_output": 1e20, "self": 1e20, "target": 0.0}),
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, NAN),
            "self": (0.0, -0.0, 1.0, 300.0, INF, -INF, NAN),
            "target": (0.0, -0.0, 1.0, 1e-4, INF, -INF, NAN),
        }),
    ),
    halfway=halfway({"grad_output": HALFWAY, "self": 0.75, "target": 0.0}, reduction=0),
    invalid=(
        *defects.nulls(*INPUTS, "out"),
        *defects.dtypes("grad_output", "target", found=FLOAT16),
        *defects.all_dtypes("self", "grad_output", "target"),
        *defects.all_dtypes("self", "grad_output", "target", found=BF16, products=WITHOUT_BFLOAT16),
        *defects.dtypes("out"),
        *defects.no_bfloat16("out"),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        *defects.ranks(*INPUTS),
        *defects.shapes("grad_output", (5, 3), blames=INPUTS[:2]),
        *defects.shapes("self", (5, 3), blames=INPUTS[:2]),
        *defects.shapes("target", (5, 3), blames=INPUTS),
        Invalid("out-transposed", {"out": {"shape": (4, 3)}}, ("out",), ShapeError),
        Invalid("out-of-higher-rank", {"out": {"shape": (1, 3, 4)}}, ("out",), ShapeError),
    ),
)  # fmt: skip
