"""aclnnSigmoidBackward [src:sigmoid]; of real numbers, complex ones are not drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, COMPLEX64, DOUBLE, FLOAT, FLOAT16, FLOATS, INT32
from npucall.errors import DTypeError
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal, probabilities
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    HALFWAY,
    In,
    Invalid,
    Out,
    Setup,
    crossed,
    halfway,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import FRACTIONAL, PRODUCTS, on

INPUTS = ("grad_output", "output")
OUTPUT = "grad_input"
NAN, INF = reals.NAN, reals.INFINITY


def scalar(k: Arguments, g: float, y: float) -> float:
    return g * (1 - y) * y


def vector(k: Arguments, g: Any, y: Any) -> Any:
    return y * (g * (1.0 - y)), np.abs(g * y) * (1 + np.abs(y))


SIGMOID_BACKWARD = elementwise(
    "aclnnSigmoidBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* output, aclTensor* gradInput",
    takes=on(PRODUCTS, *FRACTIONAL),
    inputs=(In("grad_output", normal()), In("output", probabilities())),
    output=Out(OUTPUT, shape=lambda k: k.shape(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    dtypes=(*FLOATS, DOUBLE),
    kernel=promotion(*INPUTS),
    npu=aten("sigmoid_backward", "grad_output", "output"),
    torch=lambda k, torch: torch.ops.aten.sigmoid_backward(k["grad_output"], k["output"]),
    mixed=(
        *mixed_floats(*INPUTS, output=OUTPUT),
        *(Setup(dtypes={name: DOUBLE}) for name in INPUTS),
        *(Setup(dtypes={**dict.fromkeys(INPUTS, DOUBLE), OUTPUT: each}) for each in FLOATS),
        *(Setup(dtypes={**dict.fromkeys(INPUTS, each), OUTPUT: DOUBLE}) for each in FLOATS),
        # A product without BF16 looks for it in gradOutput alone.
        *(
            Setup(dtypes={"grad_output": FLOAT, "output": FLOAT, name: BF16},
                 products=("Ascend910", "Ascend310P", "Ascend310B"))
            for name in ("output", OUTPUT)
        ),
    ),
    edges=(
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
            "output": (0.0, -0.0, 1.0, 0.5, 0.99951171875, 1e-4, 2.0, -1.0, 300.0, INF, -INF, NAN),
        }),
    ),
    halfway=halfway({"grad_output": HALFWAY, "output": 0.25}),
    written=written.SIGMOID_BACKWARD,
    invalid=(
        *defects.nulls(*INPUTS, OUTPUT),
        *defects.dtypes(*INPUTS, OUTPUT, found=INT32),
        Invalid(
            "bf16-everywhere", defects.all_of(BF16, *INPUTS, OUTPUT), ("grad_output",),
            DTypeError, products=WITHOUT_BFLOAT16,
        ),
        Invalid(
            "bf16-grad_output", {"grad_output": {"dtype": BF16}}, ("grad_output",),
            DTypeError, products=WITHOUT_BFLOAT16,
        ),
        *defects.ranks(*INPUTS),
        Invalid("cast-from-complex", {"output": {"dtype": COMPLEX64}}, (OUTPUT,), DTypeError),
        Invalid(
            "cast-to-narrow-from-complex",
            {"grad_output": {"dtype": COMPLEX64}, OUTPUT: {"dtype": FLOAT16}}, (OUTPUT,),
            DTypeError,
        ),
        *defects.shapes("grad_output", (5, 3), blames=INPUTS),
        *defects.shapes("output", (5, 3), blames=INPUTS),
        *defects.shapes(OUTPUT, (4, 3), (1, 3, 4), (1, 4)),
    ),
)  # fmt: skip
