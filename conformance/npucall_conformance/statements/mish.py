"""aclnnMish and aclnnMishBackward [src:mish]."""

from __future__ import annotations

from math import exp, log1p, tanh
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16, UINT16
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Out, crossed, mixed_floats
from npucall_conformance.stating.promotion import dtype_of, promotion
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B, FLOATS_EVERYWHERE


def scalar(_: Arguments, x: float) -> float:
    return x * tanh(max(x, 0.0) + log1p(exp(-abs(x))))


def vector(_: Arguments, x: Any) -> Any:
    return x * np.tanh(np.logaddexp(0.0, x))


MISH = elementwise(
    "aclnnMish",
    prototype="const aclTensor* self, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend950", "Ascend310P", "Ascend310B"),
    inputs=(shared.numbers(3.0),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("self"),
    npu=aten("mish", "self"),
    torch=lambda k, torch: torch.nn.functional.mish(k["self"]),
    edges=(shared.edges(-1.1924, 20.0625, -20.0, -84.0, -88.0, -95.0, -104.0),),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT16, blames=("self",)),
        *defects.ranks("self", "out"),
        *shared.shapes_of("out"),
    ),
)


def slope(_: Arguments, g: float, x: float) -> float:
    t = tanh(max(x, 0.0) + log1p(exp(-abs(x))))
    return g * (t + x * reals.sigmoid(x) * (1 - t * t))


def slopes(_: Arguments, g: Any, x: Any) -> Any:
    soft = np.logaddexp(0.0, x)
    t, bend = np.tanh(soft), x * np.exp(-np.logaddexp(0.0, -x)) / np.cosh(soft) ** 2
    return g * (t + bend), np.abs(g) * (t + np.abs(bend))


BOTH = ("grad_output", "self")
TENSORS = (*BOTH, "grad_input")
MISH_BACKWARD = elementwise(
    "aclnnMishBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, aclTensor* gradInput",
    takes=FLOATS_BUT_ON_310B,
    legacy=("Ascend910", "Ascend310P"),
    inputs=(In("grad_output", normal()), In("self", normal(2.0))),
    output=Out("grad_input", lambda k: k.shape(*BOTH), promotion(*BOTH)),
    scalar=slope,
    vector=slopes,
    space=BOTH,
    kernel=promotion(*BOTH),
    npu=aten("mish_backward", *BOTH),
    torch=lambda k, torch: torch.ops.aten.mish_backward(*(k[n] for n in BOTH))
    if k["grad_output"].shape == k["self"].shape else None,
    mixed=mixed_floats(*BOTH, output="grad_input"),
    edges=(crossed({
        "grad_output": (1.0, 0.0, -2.0, 300.0, shared.NAN),
        "self": (0.0, 1.0, -1.0, -1.1924, 2.5, -5.0, 12.0, -12.0, 20.0, -40.0, shared.NAN),
    }),),
    invalid=(
        *defects.nulls(*TENSORS),
        *defects.dtypes(*BOTH, found=UINT16, blames=BOTH),
        *defects.uncastable("grad_input"),
        *defects.dtypes(*TENSORS),
        *defects.no_bfloat16(*TENSORS),
        *defects.ranks(*TENSORS),
        *defects.shapes("grad_output", (5, 3), blames=BOTH),
        *defects.shapes("self", (5, 3), blames=BOTH),
        *defects.shapes("grad_input", (4, 3), (1, 3, 4), (1, 4)),
    ),
)  # fmt: skip

INPLACE_MISH = in_place(MISH)
