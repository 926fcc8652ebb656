"""aclnnGeluBackward, the tanh form [src:gelu]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BOOL, DOUBLE, FLOATS
from npucall_conformance.statements import _gelu as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import In, Out, Setup, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS, OUTPUT = shared.INPUTS, shared.OUTPUT


def scalar(k: Arguments, g: float, x: float) -> float:
    return g * shared.tanh_form(x)


def vector(k: Arguments, g: Any, x: Any) -> Any:
    step, slope = shared.tanh_form_of(x)
    return g * (step + slope), np.abs(g) * (step + np.abs(slope))


GELU_BACKWARD = elementwise(
    "aclnnGeluBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, const aclTensor* gradInput",
    takes=FLOATS_EVERYWHERE,
    inputs=(In("grad_output", normal()), In("self", normal())),
    output=Out(OUTPUT, shape=lambda k: k.shape(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    kernel=promotion(*INPUTS),
    npu=lambda given: given.aten.gelu_backward(
        given["grad_output"], given["self"], approximate="tanh"
    ),
    torch=lambda k, torch: torch.ops.aten.gelu_backward(
        k["grad_output"], k["self"], approximate="tanh"
    ),
    mixed=(
        *mixed_floats(*INPUTS, output=OUTPUT),
        *shared.BESIDE_FLOATS,
        # Converted last, to any that the result can be cast to.
        *(Setup(dtypes={**dict.fromkeys(INPUTS, each), OUTPUT: DOUBLE}) for each in FLOATS),
    ),
    empty=shared.EMPTY,
    edges=shared.EDGES,
    empty_before="cast-grad_input-int32",
    invalid=(
        *defects.nulls(*shared.TENSORS),
        *shared.DTYPES,
        *defects.ranks(*INPUTS),
        *shared.BROADCAST,
        *defects.uncastable(OUTPUT),
        *defects.uncastable(OUTPUT, BOOL),
    ),
)
