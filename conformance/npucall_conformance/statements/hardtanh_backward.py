"""aclnnHardtanhBackward [src:hardtanh]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, FLOAT, FLOAT16, INT8, INT32, INT64
from npucall.errors import DTypeError
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import choice, mixed, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

BOTH = ("grad_output", "self")
NAN, INF = reals.NAN, reals.INFINITY


def scalar(k: Arguments, g: float, x: float) -> float:
    if x <= k["min"] or x >= k["max"]:
        return 0.0  # whatever the gradient is
    return g  # also where x is NaN


def vector(k: Arguments, g: Any, x: Any) -> Any:
    inside = (k["min"] < x) & (x < k["max"])
    return np.where(np.isnan(x) | inside, g, 0.0)


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.ops.aten.hardtanh_backward(k["grad_output"], k["self"], k["min"], k["max"])


def ends(note: str, low: Any, high: Any, *numbers: float, **more: Any) -> Setup:
    """Other ends, with the input at these numbers."""
    values = {"grad_output": [1.5] * len(numbers), "self": numbers} if numbers else {}
    attributes = {"min": low, "max": high}
    return Setup(note, (len(numbers),) if numbers else None, {}, values, attributes, **more)


HARDTANH_BACKWARD = elementwise(
    "aclnnHardtanhBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclScalar* min, "
        "const aclScalar* max, aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    legacy=(),
    inputs=(
        In("grad_output", normal()),
        In("self", mixed(normal(2.0), choice(-1.0, -0.25, 1.0, 6.0), 0.2)),
    ),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("self"),
    cost=0,
    npu=aten("hardtanh_backward", *_npu.BOTH, "min", "max"),
    torch=torch_says,
    attributes={"min": (-1.0, -0.25), "max": (1.0, 6.0)},
    mixed=(
        # 0.1 is rounded to FLOAT, and then is the number itself; the other FLOATs are neighbours.
        ends("rounded", -0.1, 0.1, -0.1, 0.1, 0.1 - 1e-8, 0.1 + 1e-8),
        ends("integers", Scalar(INT32, -2), Scalar(INT64, 2**24 + 1), -2, 2**24 - 1, 2**24),
        ends("truth", Scalar(INT8, -128), Scalar(BOOL, value=True), -128, -127, 0, 1),
        ends("short", Scalar(FLOAT16, -0.1), Scalar(FLOAT, 0.1)),
        ends("bfloat16", Scalar(BF16, -0.1), Scalar(BF16, 0.3)),
    ),
    empty=(
        # The checks end before they come to the output's dtype.
        Setup(
            "out-of-another-dtype", (0, 3), dtypes={**dict.fromkeys(BOTH, FLOAT), "out": FLOAT16}
        ),
    ),
    edges=(
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
            "self": (
                -1.0, 1.0, -0.25, 6.0, -1 + 2.0**-24, 1 - 2.0**-24, -1 - 2.0**-23, 1 + 2.0**-23,
                0.0, -0.0, 300.0, INF, -INF, NAN,
            ),
        }),
    ),
    reductions=(
        ends("turned", 1.0, -1.0, -2, -1, -0.5, 0, 1, 2, NAN),
        ends("alike", 0.5, 0.5, 0.25, 0.5, 1, NAN),
        ends("endless", -INF, INF, -300, 0, 300, INF, -INF, NAN),
        ends("from-zero", 0.0, 6.0, -0.0, 0.0, 1e-4, 6),
    ),
    empty_before="dtype-float16-out",
    invalid=(
        *defects.nulls("self", "grad_output", "out", "min", "max"),
        *defects.dtypes(*BOTH, "out"),
        *defects.dtypes("out", found=INT32),
        *defects.no_bfloat16(*BOTH, "out"),
        *defects.dtypes("grad_output", found=FLOAT16),
        *defects.dtypes("self", found=FLOAT16, blames=("grad_output",)),
        *defects.ranks(*BOTH),
        *defects.shapes("grad_output", (4, 3), (1, 4), (1, 3, 4)),
        *defects.shapes("self", (4, 3), (1, 4), blames=("grad_output",)),
        *(
            Invalid(f"complex-{name}", {name: Scalar(COMPLEX64, 1)}, (name,), DTypeError)
            for name in ("min", "max")
        ),
        # What follows is the service's: behind its own checks the operator fails with 561103.
        *defects.dtypes("out", found=FLOAT16),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
    ),
)  # fmt: skip
