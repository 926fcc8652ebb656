"""aclnnHardtanh [src:hardtanh]."""

from __future__ import annotations

from math import isnan
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
)
from npucall.errors import AttributeValueError, DTypeError
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Contradiction, Invalid, Out, Refusal, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import INTEGERS, everywhere

ENDS = ("clip_value_min", "clip_value_max")
INF, NAN = shared.INF, shared.NAN


def scalar(k: Arguments, x: float) -> float:
    low, high = (float(k[name]) for name in ENDS)
    if any(map(isnan, (x, low, high))):
        return NAN
    return min(max(x, low), high)


def vector(k: Arguments, x: Any) -> Any:
    low, high = (np.float64(k[name]) for name in ENDS)
    value = np.where(x < low, low, x)
    value = np.where(value > high, high, value)
    return value + 0 * np.where(np.isinf([low, high]), 0, [low, high]).sum()


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.clamp(k["self"], *(float(k[name]) for name in ENDS))


def ends(note: str, low: Any, high: Any, *found: float, **more: Any) -> Setup:
    values = {"self": found} if found else {}
    attributes = dict(zip(ENDS, (low, high), strict=True))
    base = (len(found),) if found else None
    return Setup(note, base, attributes=attributes, values=values, **more)


def crossing(note: str, low: Scalar, high: Scalar) -> Invalid:
    return Invalid(note, dict(zip(ENDS, (low, high), strict=True)), ENDS, AttributeValueError)


HARDTANH = elementwise(
    "aclnnHardtanh",
    prototype=(
        "const aclTensor* self, const aclScalar* clipValueMin, const aclScalar* clipValueMax, "
        "aclTensor* out"
    ),
    takes=everywhere(*FLOATS, DOUBLE, *INTEGERS),
    in_kernel=ENDS,
cost=0,
    inputs=(shared.numbers(3.0, 1.0, 5.0),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE, INT32, INT8, UINT8, INT16, INT64),
    kernel=dtype_of("self"),
    npu=aten("hardtanh", "self", "clip_value_min", "clip_value_max"),
    torch=torch_says,
    attributes={
        "clip_value_min": (0.0, Scalar(INT8, 1), Scalar(DOUBLE, 0.1)),
        "clip_value_max": (5.7, Scalar(UINT8, 2)),
    },
    mixed=(
        *(ends("rounded", -0.1, 0.1, -1, 1, dtypes={"self": each}) for each in (*FLOATS, DOUBLE)),
        *(
            ends("fractions", -2.75, 4.75, -9, -3, -2, 0, 4, 5, dtypes={"self": each})
            for each in (INT8, INT16, INT32, INT64)
        ),
        ends("beyond-24-bits", Scalar(INT64, -(2**24) - 1), Scalar(INT32, 2**24 + 1),
             -(2**25), 2**24, 2**24 + 1, 2**24 + 2, dtypes={"self": INT32}),
        ends("up-to-53-bits", Scalar(INT64, 3 - 2**53), Scalar(INT64, 2**53 - 3),
             -(2**53), 2**53 - 4, 2**53 - 2, dtypes={"self": INT64}),
        ends("short", Scalar(FLOAT16, -0.1), Scalar(FLOAT, 0.1)),
        ends("bfloat16", Scalar(BF16, -0.1), Scalar(BF16, 0.3),
             products=("Ascend910B", "Ascend910_93", "Ascend950")),
        ends("equal-as-integers", Scalar(INT32, 0), -0.5, -3, 0, 2),
    ),
    edges=(
        *(
            shared.edges(only=(*FLOATS, DOUBLE), attributes=dict(zip(ENDS, pair, strict=True)))
            for pair in (
                (-1.0, 1.0), (-INF, 1.0), (-1.0, INF), (-INF, INF), (2.0, 2.0), (NAN, 1.0),
                (-1.0, NAN), (INF, INF),
            )
        ),
        *(shared.whole(each, only=(each,)) for each in shared.SMALL_INTEGERS),
    ),
    invalid=(
        *defects.nulls("self", *ENDS, "out"),
        *defects.dtypes("self", found=UINT16),
        *defects.dtypes("self", found=BOOL),
        *defects.no_bfloat16("self"),
        *(
            Invalid(
                f"dtype-{name}-{end.dtype.name.lower()}", {name: end}, (name,), DTypeError,
                products=products,
            )
            for name in ENDS
            for end, products in (
                (Scalar(BOOL, value=True), ()),
                (Scalar(COMPLEX64, 1), ()),
                (Scalar(BF16, 1), WITHOUT_BFLOAT16),
            )
        ),
        *defects.dtypes("self", found=DOUBLE, blames=shared.TENSORS),
        *defects.dtypes("out", found=FLOAT16, blames=shared.TENSORS),
        *defects.ranks("self"),
        *shared.too_many_dimensions(),
        *shared.shapes_of("self"),
        crossing("ends-crossed", Scalar(DOUBLE, 0.5), Scalar(DOUBLE, 0.25)),
        crossing("ends-crossed-as-doubles", Scalar(FLOAT, 0.5), Scalar(INT32, 0)),
        crossing("ends-crossed-as-integers", Scalar(INT64, 2**24 + 1), Scalar(INT32, 2**24)),
    ),
    contradictions=(
        Contradiction(
            "F30", "an end of BOOL",
            ends("", -1.0, Scalar(BOOL, value=True), -3.0, 2.0),
            {"page": [-1.0, 1.0], "source": Refusal()}, "source",
        ),
    ),
)  # fmt: skip
INPLACE_HARDTANH = in_place(HARDTANH)
