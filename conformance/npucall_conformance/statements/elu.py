"""aclnnElu [src:elu]."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, FLOATS, INT8, INT32, INT64
from npucall.errors import DTypeError
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    HALFWAY,
    PAIRS_OF_FLOATS,
    Contradiction,
    Invalid,
    Out,
    Setup,
    halfway,
)
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE

NUMBERS = ("alpha", "scale", "input_scale")
INF, NAN = shared.INF, shared.NAN


def scalar(k: Arguments, x: float) -> float:
    if not x <= 0:  # NaN is not
        return x * k["scale"]
    if not isfinite(k["alpha"]) or not isfinite(k["input_scale"]):
        return -(k["alpha"] * k["scale"])
    return k["alpha"] * reals.expm1(x * k["input_scale"], k.top) * k["scale"]


def vector(k: Arguments, x: Any) -> Any:
    alpha, scale, inner = (np.float64(k[name]) for name in NUMBERS)
    exponent = x * inner
    power = capped(np.expm1(exponent), k.top)
    bent, size = power * alpha * scale, np.abs(exponent) * (1 + np.abs(power))
    if not np.isfinite([alpha, inner]).all():
        bent, size = np.full_like(x, -alpha * scale), np.zeros_like(x)
    value = np.where(x <= 0, bent, x * scale)
    # Rounding the exponent shows in e^.
    return value, np.abs(value) + np.where(x <= 0, np.abs(alpha * scale) * size, 0.0)


def torch_says(k: Arguments, torch: Any) -> Any:
    if not all(isfinite(k[name]) for name in NUMBERS):
        return None
    return torch.ops.aten.elu(k["self"], *(k[name] for name in NUMBERS))


def numbers(note: str, alpha: Any, scale: Any, input_scale: Any, **more: Any) -> Setup:
    given = dict(zip(NUMBERS, (alpha, scale, input_scale), strict=True))
    return Setup(note, attributes=given, **more)


def special(alpha: float, scale: float, input_scale: float) -> Setup:
    """Numbers that are not finite."""
    given = dict(zip(NUMBERS, (alpha, scale, input_scale), strict=True))
    return shared.edges(attributes=given)


ELU = elementwise(
    "aclnnElu",
    prototype=(
        "const aclTensor* self, const aclScalar* alpha, const aclScalar* scale, "
        "const aclScalar* inputScale, aclTensor* out"
    ),
    takes=FLOATS_AND_DOUBLE,
    inputs=(shared.numbers(),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE),
    kernel=dtype_of("self"),
    npu=aten("elu", "self", "alpha", "scale", "input_scale"),
    torch=torch_says,
    attributes={"alpha": (1.0, 1.75), "scale": (1.0, 1.0507), "input_scale": (1.0, -0.7)},
    mixed=(
        *shared.converted(*PAIRS_OF_FLOATS, *shared.WIDER, (BF16, DOUBLE), (DOUBLE, FLOAT16)),
        numbers("integers", Scalar(INT32, 2), Scalar(INT64, 2**24 + 1), Scalar(INT8, -1)),
        numbers("short", Scalar(FLOAT16, 0.1), Scalar(FLOAT, 0.1), Scalar(BOOL, value=True)),
        numbers("bfloat16", Scalar(BF16, 0.1), 1.1, Scalar(BF16, 0.3)),
    ),
    edges=(
        shared.edges(-1.75, -89.0),
        *(
            special(*given)
            for given in (
                (INF, 1.0, 1.0), (-INF, 2.0, 1.0), (NAN, 1.0, 1.0), (1.5, 2.0, INF),
                (1.5, 2.0, -INF), (1.5, 2.0, NAN), (0.0, 1.0, INF), (1.5, INF, 1.0),
                (1.5, NAN, 1.0), (1e30, 1e30, 1.0),
            )
        ),
    ),
    reductions=(
        numbers("alpha-negative", -1.5, 1.0, 1.0),
        numbers("all-negative", -1.5, -2.0, -0.5),
        numbers("alpha-zero", 0.0, 1.5, 1.0),
        numbers("scale-zero", 1.0, 0.0, 1.0),
        numbers("input-scale-zero", 1.0, 1.5, 0.0),
    ),
    halfway=halfway(
        {"self": tuple(map(abs, HALFWAY))}, alpha=1.0, scale=1.5, input_scale=1.0
    ),
    invalid=(
        *defects.nulls("self", *NUMBERS, "out"),
        *defects.dtypes("self", found=INT32),
        *defects.no_bfloat16("self"),
        *(
            Invalid(f"complex-{name}", {name: Scalar(COMPLEX64, 1)}, (name,), DTypeError)
            for name in ("scale", "alpha", "input_scale")
        ),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.shapes("self", (4, 3), (1, 4), blames=("out",)),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
        *defects.shapes("self", defects.NINE, blames=("out",)),
        *shared.too_many_dimensions(),
    ),
    contradictions=(
        Contradiction(
            "F28", "inputScale is infinite",
            numbers("", 1.5, 1.0, -INF, values={"self": [-1.0, 2.0]}),
            {"page": [INF, 2.0], "source": [-1.5, 2.0], "torch": [INF, 2.0]}, "source",
        ),
    ),
)  # fmt: skip

INPLACE_ELU = in_place(ELU)
