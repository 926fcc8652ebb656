"""aclnnSiluBackward [src:silu]."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT, FLOAT16
from npucall.errors import DTypeError, ShapeError
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup, crossed, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import (
    BEFORE_950,
    LEFT_OUT,
    ONLY_950,
    WITHOUT_BFLOAT16,
    Statement,
)
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("grad_output", "self")
OUTPUT = "grad_input"
TENSORS = (*INPUTS, OUTPUT)
NAN, INF = reals.NAN, reals.INFINITY


def scalar(k: Arguments, g: float, x: float) -> float:
    s = reals.sigmoid(x)
    return g * (s * (1 + x * reals.sigmoid(-x)))


def vector(k: Arguments, g: Any, x: Any) -> Any:
    s = np.exp(-np.logaddexp(0.0, -x))
    slope = x / (2 + np.exp(x) + np.exp(-x))  # x s (1 - s)
    slope = np.where(np.isinf(x), np.nan, slope)  # infinity times 0, as written
    return g * (s + slope), np.abs(g) * (s + np.abs(slope))


def torch_says(k: Arguments, torch: Any) -> Any:
    if k["self"].shape != k["grad_output"].shape:
        return None
    return torch.ops.aten.silu_backward(k["grad_output"], k["self"])


def on_950(setups: tuple[Setup, ...]) -> tuple[Setup, ...]:
    """Elsewhere shapes and dtypes must be equal."""
    return tuple(replace(setup, products=ONLY_950) for setup in setups)


def with_broadcast_on_950(statement: Statement) -> Statement:
    alike = tuple(setup for setup in statement.large if not setup.shapes)
    stretched = on_950(tuple(setup for setup in statement.large if setup.shapes))
    return replace(statement, broadcast=on_950(statement.broadcast), large=(*alike, *stretched))


SILU_BACKWARD = with_broadcast_on_950(elementwise(
    "aclnnSiluBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, aclTensor* gradInput",
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(In("grad_output", normal()), In("self", normal(3))),
    output=Out(OUTPUT, shape=lambda k: k.shape(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    kernel=promotion(*INPUTS),
    npu=aten("silu_backward", *_npu.BOTH),
    torch=torch_says,
    mixed=on_950((
        *mixed_floats(*INPUTS),
        Setup(dtypes={"grad_output": FLOAT16, "self": BF16, OUTPUT: FLOAT}),
        Setup(dtypes={"grad_output": FLOAT, "self": FLOAT16, OUTPUT: FLOAT}),
    )),
    empty=on_950((
        Setup("one-empty", shapes={"grad_output": (0, 4), "self": (1, 4)}),
        Setup("both-stretch", shapes={"grad_output": (2, 1), "self": (1, 0)}),
    )),
    edges=(
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
            "self": (0.0, -0.0, 1.0, -1.0, -1.2784645, 12.0, -12.0, INF, -INF, NAN),
        }),
        crossed({  # without infinite gradients, since far out a device's result is 0
            "grad_output": (1.0, 0.0, -2.0, 300.0, NAN),
            "self": (-20.0, 20.0, -80.0, 89.0, -104.0, 1e4, -1e4),
        }),
    ),
    invalid=(
        *defects.nulls(*TENSORS),
        *defects.dtypes(*TENSORS),
        *defects.dtypes("grad_output", found=FLOAT16, products=BEFORE_950),
        *defects.dtypes("self", found=FLOAT16, products=BEFORE_950),
        # gradOutput is compared with gradInput first.
        *defects.dtypes(OUTPUT, found=FLOAT16, blames=("grad_output",)),
        Invalid(
            "mixed-into-float16", {"self": {"dtype": FLOAT16}, OUTPUT: {"dtype": FLOAT16}},
            (OUTPUT,), DTypeError, products=ONLY_950,
        ),
        Invalid(
            "self-alone-differs",
            {"grad_output": {"dtype": FLOAT16}, OUTPUT: {"dtype": FLOAT16}}, ("self",), DTypeError,
            products=BEFORE_950,
        ),
        Invalid(
            "self-alone-of-another-dtype", {"self": {"dtype": FLOAT16}, OUTPUT: LEFT_OUT},
            ("self",), DTypeError, products=BEFORE_950,
        ),
        Invalid(
            "bf16-everywhere", defects.all_of(BF16, *TENSORS), ("grad_output",),
            DTypeError, products=WITHOUT_BFLOAT16,
        ),
        *defects.ranks(*INPUTS),
        *defects.shapes("grad_output", (4, 3), (1, 4), products=BEFORE_950),
        *defects.shapes(OUTPUT, (4, 3), (1, 3, 4), blames=("grad_output",), products=BEFORE_950),
        *defects.shapes("self", (4, 3), (1, 4), products=BEFORE_950),
        # The inputs are compared with each other too, which shows if the call gives no output.
        Invalid(
            "self-alone-of-another-shape", {"self": {"shape": (1, 4)}, OUTPUT: LEFT_OUT},
            ("self",), ShapeError, products=BEFORE_950,
        ),
        *defects.shapes("grad_output", (5, 3), blames=INPUTS, products=ONLY_950),
        *defects.shapes("self", (5, 3), blames=INPUTS, products=ONLY_950),
        *defects.shapes(OUTPUT, (3, 4, 1), (1, 4), products=ONLY_950),
    ),
))  # fmt: skip
