"""aclnnGeluBackward, the tanh form: operators.md 2.2 and 2.3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import BOOL, DOUBLE, FLOATS
from npucall_client.conformance import defects
from npucall_client.conformance.domains import normal
from npucall_client.conformance.elementwise import elementwise
from npucall_client.conformance.statement import In, Out, Setup, mixed_floats, promotion
from npucall_client.conformance.statements import _gelu as shared

if TYPE_CHECKING:
    from npucall_client.conformance.given import Given

INPUTS, OUTPUT = shared.INPUTS, shared.OUTPUT


def scalar(k: Given, g: float, x: float) -> float:
    return g * shared.tanh_form(x)


def vector(k: Given, g: Any, x: Any) -> Any:
    step, slope = shared.tanh_form_of(x)
    return g * (step + slope), np.abs(g) * (step + np.abs(slope))


GELU_BACKWARD = elementwise(
    "aclnnGeluBackward",
    inputs=(In("grad_output", normal()), In("self", normal())),
    output=Out(OUTPUT, shape=lambda k: k.shape(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    kernel=promotion(*INPUTS),
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
    invalid=(
        *defects.nulls(*shared.TENSORS),
        *shared.DTYPES,
        *defects.ranks(*INPUTS),
        *shared.BROADCAST,
        *defects.uncastable(OUTPUT),
        *defects.uncastable(OUTPUT, BOOL),
    ),
)
