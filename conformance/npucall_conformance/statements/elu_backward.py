"""aclnnEluBackward [src:elu]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import AttributeValueError, DTypeError, ShapeError
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import choice, mixed, normal
from npucall_conformance.stating.elementwise import capped, elementwise
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
)
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("grad_output", "self_or_result")
NUMBERS = ("alpha", "scale", "input_scale")
OUTPUT = "grad_input"
NAN, INF = reals.NAN, reals.INFINITY


def scalar(k: Arguments, g: float, x: float) -> float:
    if not x <= 0:  # NaN is not
        return g * k["scale"]
    bend = k["alpha"] * k["scale"]
    if k["is_result"]:
        return g * k["input_scale"] * (x + bend)
    return g * k["input_scale"] * bend * reals.exp(x * k["input_scale"], k.top)


def vector(k: Arguments, g: Any, x: Any) -> Any:
    alpha, scale, inner = (np.float64(k[name]) for name in NUMBERS)
    if k["is_result"]:
        slope, size = (
            inner * x + inner * alpha * scale,
            np.abs(inner) * (np.abs(x) + np.abs(alpha * scale)),
        )
    else:
        exponent = np.multiply(inner, x)
        slope = capped(np.exp(exponent), k.top) * (alpha * scale * inner)
        size = np.abs(slope) * (1 + np.abs(exponent))  # rounding the exponent shows in e^
    negative = x <= 0
    return np.where(negative, slope, scale) * g, np.abs(g) * np.where(negative, size, np.abs(scale))


def torch_says(k: Arguments, torch: Any) -> Any:
    backward = torch.ops.aten.elu_backward
    numbers = [k[name] for name in NUMBERS]
    return backward(k["grad_output"], *numbers, k["is_result"], k["self_or_result"])


def numbers(note: str, alpha: Any, scale: Any, input_scale: Any, **more: Any) -> Setup:
    given = dict(zip(NUMBERS, (alpha, scale, input_scale), strict=True))
    return Setup(note, attributes={**given, "is_result": False}, **more)


ELU_BACKWARD = elementwise(
    "aclnnEluBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclScalar* alpha, const aclScalar* scale, "
        "const aclScalar* inputScale, bool isResult, const aclTensor* selfOrResult, "
        "aclTensor* gradInput"
    ),
    takes=FLOATS_EVERYWHERE,
    inputs=(
        In("grad_output", normal()),
        In("self_or_result", mixed(normal(2.0), choice(0.0, -0.0), 0.1)),
    ),
    output=Out(OUTPUT, shape="grad_output", dtype="grad_output"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("grad_output"),
    npu=aten(
        "elu_backward", "grad_output", "alpha", "scale", "input_scale", "is_result",
        "self_or_result",
    ),
    torch=torch_says,
    attributes={
        "alpha": (1.0, 1.75), "scale": (1.0, 1.0507), "input_scale": (1.0, -0.7),
        "is_result": (False, True),
    },
    mixed=(
        *(
            Setup(dtypes={**dict.fromkeys(INPUTS, one), OUTPUT: other})
            for one, other in PAIRS_OF_FLOATS
        ),
        Setup(dtypes={OUTPUT: DOUBLE}),
        numbers("integers", Scalar(INT32, 2), Scalar(INT64, 2**24 + 1), Scalar(INT8, -1)),
        numbers("short", Scalar(FLOAT16, 0.1), Scalar(FLOAT, 0.1), Scalar(BOOL, value=True)),
        numbers("bfloat16", Scalar(BF16, 0.1), 1.1, Scalar(BF16, 0.3)),
    ),
    edges=(
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
            "self_or_result": (
                0.0, -0.0, 1e-7, -1e-7, 1.5, -1.0, -1.75, -12.0, 300.0, INF, -INF, NAN,
            ),
        }),
        crossed(  # e^ that is subnormal or 0 in FLOAT, which times an infinity is NaN
            {"grad_output": (1.0, 0.0, -2.0, 300.0), "self_or_result": (-89.0, -300.0)}
        ),
    ),
    reductions=(
        numbers("alpha-negative", -1.5, 1.0, 1.0),
        numbers("all-negative", -1.5, -2.0, -0.5),
        numbers("alpha-zero", 0.0, 1.5, 1.0),
        numbers("scale-zero", 1.0, 0.0, 1.0),
        numbers("input-scale-zero", 1.0, 1.5, 0.0),
        Setup(
            "result-of-alpha-zero",
            attributes={"alpha": 0.0, "scale": 1.5, "input_scale": 1.0, "is_result": True},
        ),
    ),
    halfway=halfway(
        {"grad_output": HALFWAY, "self_or_result": 1.0}, alpha=1.0, scale=1.5, input_scale=1.0,
        is_result=False,
    ),
    invalid=(
        *defects.nulls("grad_output", *NUMBERS, "self_or_result", OUTPUT),
        *defects.dtypes(*INPUTS, found=FLOAT16, blames=("grad_output",)),
        *defects.all_dtypes(*INPUTS),
        *defects.all_dtypes(*INPUTS, found=INT32),
        *defects.all_dtypes(*INPUTS, found=BF16, products=WITHOUT_BFLOAT16),
        *(
            Invalid(f"complex-{name}", {name: Scalar(COMPLEX64, 1)}, (name,), DTypeError)
            for name in NUMBERS
        ),
        *defects.uncastable(OUTPUT),
        *defects.uncastable(OUTPUT, BOOL),
        *defects.shapes("self_or_result", (4, 3), (1, 4), (1, 3, 4)),
        *defects.shapes(OUTPUT, (4, 3), (3, 1), (1, 3, 4)),
        Invalid(
            "rank-9-all", {name: {"shape": defects.NINE} for name in (*INPUTS, OUTPUT)},
            ("grad_output",), ShapeError, block="rank",
        ),
        Invalid("result-of-a-negative-alpha", {"alpha": -1.0, "is_result": True},
                ("alpha", "is_result"), AttributeValueError),
    ),
)  # fmt: skip
