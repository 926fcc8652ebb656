"""aclnnThresholdBackward [src:threshold]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import COMPLEX64, DOUBLE, FLOAT, FLOAT16, FLOATS, INT8, INT32, INT64, UINT8
from npucall.errors import DTypeError
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import BEFORE_950
from npucall_conformance.stating.tables import everywhere, on

INPUTS = ("grad_output", "self")
TENSORS = (*INPUTS, "out")
TAKEN = (*FLOATS, INT32, INT8, UINT8)
NAN, INF = reals.NAN, reals.INFINITY
LEAST = 2.0**-23  # up to here a threshold, of either sign, counts as 0
JUST_MORE = LEAST * (1 + LEAST)  # the next float32


def scalar(k: Arguments, g: float, x: float) -> float:
    least = k["threshold"] if abs(k["threshold"]) > LEAST else 0.0
    return 0.0 if x <= least else g  # NaN is not below either


def vector(k: Arguments, g: Any, x: Any) -> Any:
    t = k["threshold"]
    passes = np.isnan(x) | (x > (0.0 if -LEAST <= t <= LEAST else t))
    return np.choose(passes, (np.zeros_like(g), g))


def torch_says(k: Arguments, torch: Any) -> Any:
    if 0 < abs(k["threshold"]) <= LEAST:
        return None
    return torch.ops.aten.threshold_backward(k["grad_output"], k["self"], k["threshold"])


def near_threshold(threshold: float) -> Setup:
    """What a threshold of about 2^-23 lets through; BF16 and FLOAT16 have these numbers too."""
    return Setup(
        "near-zero-threshold", attributes={"threshold": threshold}, only=(FLOAT,),
        values={"grad_output": [1.0] * 6, "self": [0, LEAST, -LEAST, LEAST / 2, -LEAST / 2, 1]},
    )  # fmt: skip


THRESHOLD_BACKWARD = elementwise(
    "aclnnThresholdBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclScalar* threshold, "
        "aclTensor* out"
    ),
    takes={**everywhere(*TAKEN), **on(("Ascend950",), *TAKEN, INT64)},
    inputs=(In("grad_output", uniform(-4, 12)), In("self", normal(2, 2.5))),
    output=Out("out", shape=lambda k: k.shape(*INPUTS), dtype="self"),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    dtypes=TAKEN,
    kernel=dtype_of("self"),
    cost=0,
    npu=aten("threshold_backward", *_npu.BOTH, "threshold"),
    torch=torch_says,
    attributes={"threshold": (0.0, 0.5, -1.0, Scalar(INT32, 1), Scalar(DOUBLE, 0.1))},
    mixed=(
        *(
            Setup("int64", dtypes=dict.fromkeys(INPUTS, INT64), attributes={"threshold": threshold},
                 products=("Ascend950",))
            for threshold in (0.0, LEAST, Scalar(INT32, 0))
        ),
    ),
    edges=(
        crossed(
            {
                "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
                "self": (0.0, -0.0, 0.5, 1.0, -1.0, 1e-4, -1e-4, 0.1, INF, -INF, NAN),
            },
            only=FLOATS,
        ),
        crossed(
            {"grad_output": (1.0, 0.0, 127.0), "self": (0.0, 1.0, 2.0, 127.0)},
            only=(INT32, INT8, UINT8),
        ),
        crossed(
            {"grad_output": (-1.0, -128.0, 127.0), "self": (-128.0, -1.0, 0.0, 1.0)},
            only=(INT32, INT8),
        ),
    ),
    reductions=tuple(map(near_threshold, (LEAST, -LEAST, JUST_MORE, -JUST_MORE))),
    invalid=(
        *defects.nulls("threshold", "out", *INPUTS),
        Invalid(
            "complex-threshold", {"threshold": Scalar(COMPLEX64, 1)}, ("threshold",), DTypeError
        ),
        *defects.dtypes("grad_output"),
        *defects.no_bfloat16("grad_output"),
        Invalid(
            "int64-everywhere", defects.all_of(INT64, *TENSORS), ("grad_output",),
            DTypeError, products=BEFORE_950,
        ),
        Invalid(
            "int64-with-threshold-elsewhere",
            {**defects.all_of(INT64, *TENSORS), "threshold": 0.5}, ("grad_output",), DTypeError,
            products=BEFORE_950,
        ),
        Invalid(
            "int64-with-threshold",
            {**defects.all_of(INT64, *TENSORS), "threshold": 0.5},
            ("grad_output", "threshold"), DTypeError, products=("Ascend950",),
        ),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        Invalid(
            "int64-self-elsewhere", {"self": {"dtype": INT64}, "threshold": 0.5}, ("self",),
            DTypeError, products=BEFORE_950,
        ),
        Invalid(
            "int64-self-with-threshold", {"self": {"dtype": INT64}, "threshold": 0.5},
            ("self", "threshold"), DTypeError, products=("Ascend950",),
        ),
        # gradOutput is compared with self, and named first.
        *defects.dtypes("grad_output", found=FLOAT16),
        *defects.dtypes("self", found=INT32, blames=("grad_output",)),
        *defects.dtypes("out", found=FLOAT16),
        *defects.ranks(*INPUTS),
        *defects.shapes("grad_output", (5, 3), blames=INPUTS),
        *defects.shapes("self", (5, 3), blames=INPUTS),
        *defects.shapes("out", (4, 3), (1, 3, 4), (1, 4)),
    ),
)  # fmt: skip
