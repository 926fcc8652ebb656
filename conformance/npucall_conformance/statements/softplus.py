"""aclnnSoftplus [src:softplus]."""

from __future__ import annotations

from math import exp, log1p
from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT32, INT64
from npucall.errors import DTypeError
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    PAIRS_OF_FLOATS,
    Contradiction,
    Invalid,
    Out,
    Refusal,
    Setup,
)
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

NUMBERS = ("beta", "threshold")
INF = shared.INF


def scalar(k: Arguments, x: float) -> float:
    exponent = k["beta"] * x
    if exponent > k["threshold"]:
        return x
    bent = max(exponent, 0.0) + log1p(exp(-abs(exponent)))  # NaN where x is
    return reals.divide(bent, k["beta"])


def vector(k: Arguments, x: Any) -> Any:
    beta = np.float64(k["beta"])
    exponent = x * beta
    linear = exponent > k["threshold"]
    value = np.where(linear, x, np.logaddexp(0.0, exponent) / beta)
    # Rounding the exponent shows in e^.
    slope = np.exp(-np.logaddexp(0.0, -exponent))
    return value, np.abs(value) + np.where(linear, 0.0, np.abs(x) * slope)


def numbers(note: str, beta: Any, threshold: Any, **more: Any) -> Setup:
    return Setup(note, attributes={"beta": beta, "threshold": threshold}, **more)


SOFTPLUS = elementwise(
    "aclnnSoftplus",
    prototype=(
        "const aclTensor* self, const aclScalar* beta, const aclScalar* threshold, aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend950", "Ascend310B"),
    inputs=(shared.numbers(3.0),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("self"),
    npu=aten("softplus", "self", "beta", "threshold"),
    torch=lambda k, torch: torch.nn.functional.softplus(k["self"], k["beta"], k["threshold"]),
    # Powers of two, so that rounding the product moves nothing over the threshold.
    attributes={"beta": (1.0, 0.5, -2.0), "threshold": (20.0, 1.0)},
    mixed=(
        *shared.converted(*PAIRS_OF_FLOATS, *((one, DOUBLE) for one in (FLOAT, FLOAT16, BF16))),
        numbers("integers", Scalar(INT32, 2), Scalar(INT64, 20)),
        numbers("short", Scalar(FLOAT16, 0.1), Scalar(FLOAT, 20.0)),
        numbers("bfloat16", Scalar(BF16, 0.3), Scalar(BOOL, value=True)),
    ),
    edges=(shared.edges(2.0, -2.0, 20.0625, -88.0, -95.0, 44.5),),
    reductions=(
        numbers("beta-zero", 0.0, 20.0),
        numbers("beta-zero-beyond", 0.0, -1.0),
        numbers("beta-odd", 0.3, 20.0),
        numbers("never-linear", 1.0, INF, values={"self": [100.0, 300.0, -300.0, INF, -INF]}),
        numbers("ever-linear", 1.0, -INF),
        numbers("threshold-negative", 1.0, -0.5),
        numbers("infinite", 0.0, 20.0, values={"self": [INF, -INF, shared.NAN]}),
    ),
    invalid=(
        *defects.nulls("self", *NUMBERS, "out"),
        *defects.dtypes("self"),
        *defects.dtypes("self", found=INT32),
        *defects.no_bfloat16("self"),
        *(
            Invalid(f"complex-{name}", {name: Scalar(COMPLEX64, 1)}, (name,), DTypeError)
            for name in NUMBERS
        ),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.ranks("self"),
        *shared.too_many_dimensions(),
        *shared.shapes_of("self"),
    ),
    contradictions=(
        Contradiction(
            "F11", "Ascend 950", Setup(products=("Ascend950",)),
            {"page": Refusal(), "source": ...}, "source",
        ),
    ),
)  # fmt: skip
