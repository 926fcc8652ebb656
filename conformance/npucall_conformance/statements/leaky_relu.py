"""aclnnLeakyRelu [src:leaky-relu]."""

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
)
from npucall.errors import DTypeError
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import HALFWAY, PAIRS_OF_FLOATS, Invalid, Out, Setup, halfway
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE

INF, NAN = shared.INF, shared.NAN
SLOPES = (
    Scalar(FLOAT, 0.1), Scalar(FLOAT16, 0.25), Scalar(DOUBLE, 0.1), Scalar(INT8, -3),
    Scalar(INT16, -300), Scalar(INT32, 70000), Scalar(INT64, 2**24 + 1), Scalar(UINT8, 200),
    Scalar(BOOL, value=True), Scalar(BF16, 0.1),
)  # fmt: skip
"""One of each dtype; what FLOAT does not hold is rounded to it."""


def scalar(k: Arguments, x: float) -> float:
    return x if x > 0 else x * k["negative_slope"]  # also where x is NaN


def vector(k: Arguments, x: Any) -> Any:
    return np.multiply(x, np.where(x > 0, 1.0, k["negative_slope"]))


def sloping(slope: Any, **more: Any) -> Setup:
    return Setup(attributes={"negative_slope": slope}, **more)


LEAKY_RELU = elementwise(
    "aclnnLeakyRelu",
    prototype="const aclTensor* self, const aclScalar* negativeSlope, aclTensor* out",
    takes=FLOATS_AND_DOUBLE,
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(shared.numbers(),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE),
    kernel=dtype_of("self"),
    cost=0,
    npu=aten("leaky_relu", "self", "negative_slope"),
    torch=lambda k, torch: torch.ops.aten.leaky_relu(k["self"], k["negative_slope"]),
    attributes={"negative_slope": (0.01, 0.0, 1.5)},
    mixed=(
        *shared.converted(*PAIRS_OF_FLOATS, *shared.WIDER, (BF16, DOUBLE), (DOUBLE, FLOAT16)),
        *map(sloping, SLOPES),
        sloping(0.1, dtypes={"self": DOUBLE}),
    ),
    edges=(
        shared.edges(),
        *(shared.edges(attributes={"negative_slope": s}) for s in (1.0, -0.5, -0.0, INF, NAN)),
    ),
    halfway=halfway({"self": HALFWAY}, negative_slope=1.5),
    invalid=(
        *defects.nulls("self", "negative_slope", "out"),
        *defects.dtypes("self", found=INT32),
        *defects.dtypes("self", found=COMPLEX64),
        *defects.no_bfloat16("self"),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.ranks("self"),
        *shared.too_many_dimensions(),
        *defects.shapes("self", (4, 3), (1, 4), blames=("out",)),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
        Invalid(
            "complex-slope", {"negative_slope": Scalar(COMPLEX64, 1)}, ("negative_slope",),
            DTypeError,
        ),
    ),
)  # fmt: skip

INPLACE_LEAKY_RELU = in_place(LEAKY_RELU)
