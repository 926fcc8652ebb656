"""aclnnSoftplusBackward [src:softplus]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    DType,
)
from npucall.errors import DTypeError
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import DTypes, In, Invalid, Out, Setup, crossed, mixed_floats
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE

BOTH = ("grad_output", "self")
OUTPUT = "grad_input"
NAN, INF = reals.NAN, reals.INFINITY
WHOLE = (0, 1, 2, 7, 19, 20, 21, 100)
SIGNED = (0, -1, 2, -7, 19, 20, 21, -100)


def kernel(dtypes: DTypes) -> DType:
    """FLOAT, unless both inputs share a shorter dtype; also for DOUBLE."""
    first, second = (dtypes[name] for name in BOTH)
    return first if first is second and first in (FLOAT16, BF16) else FLOAT


def scalar(k: Arguments, g: float, x: float) -> float:
    exponent = k["beta"] * x
    if exponent > k["threshold"]:
        return g
    return g / (1 + reals.exp(-exponent, k.top))  # NaN where x is


def vector(k: Arguments, g: Any, x: Any) -> Any:
    scaled = np.multiply(x, np.float64(k["beta"]))
    linear = scaled > k["threshold"]
    value = np.where(linear, g, g / (capped(np.exp(-scaled), k.top) + 1))
    # Rounding the exponent shows in e^.
    return value, np.abs(value) * np.where(linear, 1, 1 + np.abs(scaled))


def torch_says(k: Arguments, torch: Any) -> Any:
    backward = torch.ops.aten.softplus_backward
    return backward(k["grad_output"], k["self"], k["beta"], k["threshold"])


def numbers(note: str, beta: Any, threshold: Any, **more: Any) -> Setup:
    return Setup(note, attributes={"beta": beta, "threshold": threshold}, **more)


def integers(dtype: DType, found: tuple[float, ...], g: DType = FLOAT) -> Setup:
    return Setup(
        base=(len(found),), values={"self": found}, dtypes={"grad_output": g, "self": dtype}
    )


SOFTPLUS_BACKWARD = elementwise(
    "aclnnSoftplusBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclScalar* beta, "
        "const aclScalar* threshold, aclTensor* gradInput"
    ),
    takes=FLOATS_AND_DOUBLE,
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(In("grad_output", normal()), In("self", normal(3.0))),
    output=Out(OUTPUT, shape="self", dtype="grad_output"),
    scalar=scalar,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE),
    kernel=kernel,
    npu=aten("softplus_backward", *_npu.BOTH, "beta", "threshold"),
    torch=torch_says,
    # Powers of two, so that rounding the product moves nothing over the threshold.
    attributes={"beta": (1.0, 0.5, -2.0), "threshold": (20.0, 1.0)},
    mixed=(
        *mixed_floats(*BOTH, output=OUTPUT),
        *(Setup(dtypes={name: DOUBLE}) for name in (*BOTH, OUTPUT)),
        *(Setup(dtypes={**dict.fromkeys(BOTH, DOUBLE), OUTPUT: each}) for each in FLOATS),
        *(Setup(dtypes={**dict.fromkeys(BOTH, each), OUTPUT: DOUBLE}) for each in FLOATS[1:]),
        *(integers(each, SIGNED) for each in (INT8, INT16, INT32)),
        integers(INT64, (*SIGNED, 2**24 + 1, -(2**40) - 1)),
        *(integers(UINT8, WHOLE, g) for g in (*FLOATS, DOUBLE)),
        *(integers(BOOL, (0, 1), g) for g in (FLOAT16, DOUBLE)),
        integers(INT32, (2**24 + 1, 7, -7), FLOAT16),
        numbers("integers", Scalar(INT32, 2), Scalar(INT64, 20)),
        numbers("short", Scalar(FLOAT16, 0.1), Scalar(FLOAT, 20.0)),
        numbers("bfloat16", Scalar(BF16, 0.3), Scalar(BF16, 20.0)),
    ),
    edges=(
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
            "self": (
                0.0, -0.0, 1.0, 2.0, -0.5, 10.0, 20.0, 20.5, 40.0, 12.0, -12.0, 300.0, -300.0, INF,
                -INF, NAN,
            ),
        }),
        crossed({"grad_output": (1.0, -2.0, 300.0), "self": (-89.0, 89.0, -44.5, 44.5)}),
    ),
    reductions=(
        numbers("beta-zero", 0.0, 20.0),
        numbers("beta-zero-beyond", 0.0, -1.0),
        numbers("beta-odd", 0.3, 20.0),
        numbers("never-linear", 1.0, INF),
        numbers("ever-linear", 1.0, -INF),
        numbers("threshold-negative", 1.0, -0.5),
    ),
    written=written.SOFTPLUS_BACKWARD,
    invalid=(
        *defects.nulls(*BOTH, OUTPUT, "beta", "threshold"),
        *defects.dtypes("grad_output", found=INT32),
        *defects.dtypes("grad_output", found=COMPLEX64),
        *defects.no_bfloat16("grad_output"),
        *defects.dtypes("self", found=UINT16),
        *defects.dtypes("self", found=COMPLEX64),
        *defects.no_bfloat16("self"),
        *defects.dtypes(OUTPUT, found=INT32),
        *defects.dtypes(OUTPUT, found=BOOL),
        *defects.no_bfloat16(OUTPUT),
        *defects.ranks(*BOTH, OUTPUT),
        *defects.shapes("self", (4, 3), (1, 4), (1, 3, 4)),
        *defects.shapes("grad_output", (4, 3), (1, 4), (), blames=("self",)),
        *defects.shapes(OUTPUT, (4, 3), (1, 4), (1, 3, 4), blames=("self",)),
        *(
            Invalid(f"complex-{name}", {name: Scalar(COMPLEX64, 1)}, (name,), DTypeError)
            for name in ("beta", "threshold")
        ),
    ),
)  # fmt: skip
