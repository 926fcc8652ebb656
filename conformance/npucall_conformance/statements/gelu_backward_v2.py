"""aclnnGeluBackwardV2, both forms [src:gelu]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT16
from npucall_conformance.statements import _gelu as shared
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import autograd
from npucall_conformance.stating.parts import In, Out, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import RANK_SHAPES
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS, OUTPUT = shared.INPUTS, shared.OUTPUT


def scalar(k: Arguments, g: float, x: float) -> float:
    return g * (shared.tanh_form(x) if k["approximate"] == "tanh" else shared.erf_form(x))


def vector(k: Arguments, g: Any, x: Any) -> Any:
    form = {"none": shared.erf_form_of, "tanh": shared.tanh_form_of}[k["approximate"]]
    step, slope = form(x)
    return g * (step + slope), np.abs(g) * (step + np.abs(slope))


GELU_BACKWARD_V2 = elementwise(
    "aclnnGeluBackwardV2",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, char* approximate, "
        "aclTensor* gradInput"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"approximate": "none"},
    inputs=(In("grad_output", normal()), In("self", normal())),
    output=Out(OUTPUT, shape=lambda k: k.shape(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    kernel=promotion(*INPUTS),
    npu=autograd(_npu.npu_gelu, ("self",), "grad_output"),
    torch=lambda k, torch: torch.ops.aten.gelu_backward(
        k["grad_output"], k["self"], approximate=k["approximate"]
    ),
    attributes={"approximate": ("none", "tanh")},
    rank_shapes=(*RANK_SHAPES, (1, 2, 1, 1, 2, 1, 1, 1, 3)),  # no rank is too high
    mixed=(*mixed_floats(*INPUTS), *shared.BESIDE_FLOATS),
    empty=shared.EMPTY,
    edges=shared.EDGES,
    invalid=(
        *defects.nulls(*shared.TENSORS, "approximate"),
        *shared.DTYPES,
        *defects.dtypes(OUTPUT, found=FLOAT16),
        *defects.dtypes(OUTPUT, found=DOUBLE),
        *shared.BROADCAST,
        *defects.values("approximate", "erf", "Tanh", "nonetheless"),
    ),
)
