"""aclnnThreshold [src:threshold]."""

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
)
from npucall.errors import DTypeError
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
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
from npucall_conformance.stating.tables import INTEGERS, everywhere

NUMBERS = ("threshold", "value")
INF, NAN = shared.INF, shared.NAN


def scalar(k: Arguments, x: float) -> float:
    return float(k["value"]) if x <= k["threshold"] else x  # NaN stays


def vector(k: Arguments, x: Any) -> Any:
    passes = (x > k["threshold"]) | np.isnan(x) | np.isnan(k["threshold"])
    return np.choose(passes, (np.full_like(x, k["value"]), x))


def limits(note: str, threshold: Any, value: Any, *found: float, **more: Any) -> Setup:
    values = {"self": found} if found else {}
    attributes = dict(zip(NUMBERS, (threshold, value), strict=True))
    base = (len(found),) if found else None
    return Setup(note, base, attributes=attributes, values=values, **more)


THRESHOLD = elementwise(
    "aclnnThreshold",
    prototype=(
        "const aclTensor* self, const aclScalar* threshold, const aclScalar* value, aclTensor* out"
    ),
    takes=everywhere(*FLOATS, *INTEGERS),
    legacy=("Ascend310P", "Ascend310B"),
    in_kernel=NUMBERS,
cost=0,
    inputs=(shared.numbers(4.0, 1.0),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    dtypes=(*FLOATS, INT32, INT8, UINT8, INT16, INT64),
    kernel=dtype_of("self"),
    npu=aten("threshold", "self", "threshold", "value"),
    torch=lambda k, torch: torch.threshold(k["self"], k["threshold"], k["value"]),
    attributes={
        "threshold": (0.0, Scalar(INT32, 1), Scalar(DOUBLE, 2.6)),
        "value": (0.0, 7.3),
    },
    mixed=(
        *shared.converted(*PAIRS_OF_FLOATS, (FLOAT, DOUBLE), (INT8, INT32), (INT64, INT16)),
        *shared.converted((INT32, FLOAT), (UINT8, DOUBLE), (INT16, FLOAT16)),
        # 0.1 becomes the number of each dtype itself, which then is not beyond.
        *(limits("rounded", 0.1, 0.7, 0.1, 0.2, dtypes={"self": each}) for each in FLOATS),
        limits("beyond-24-bits", Scalar(INT64, 2**24 + 1), Scalar(INT64, -(2**24) - 1),
               2**24, 2**24 + 1, 2**24 + 2, dtypes={"self": INT32}),
        limits("up-to-53-bits", Scalar(INT64, 2**53 - 2), Scalar(INT64, 1 - 2**53),
               2**53 - 3, 2**53 - 2, 2**53 - 1, dtypes={"self": INT64}),
        *(
            limits("fractions", threshold, -3.9, -2, -1, 0, 1, dtypes={"self": each})
            for each in (INT8, INT16, INT32, INT64)
            for threshold in (-0.5, -1.0, -1.5, Scalar(FLOAT, 0.9))
        ),
        limits("short", Scalar(FLOAT16, 0.1), Scalar(FLOAT, 0.1)),
        limits("bfloat16", Scalar(BF16, 0.1), Scalar(BOOL, value=True)),
    ),
    edges=(
        *(
            shared.edges(0.1, only=FLOATS, attributes=dict(zip(NUMBERS, pair, strict=True)))
            for pair in (
                (0.1, -2.0), (-1.5, -1.5), (INF, -INF), (-INF, 7.0), (NAN, 7.0), (1.0, NAN),
            )
        ),
        shared.edges(only=FLOATS),
        *(shared.whole(each, only=(each,)) for each in shared.SMALL_INTEGERS),
    ),
    halfway=tuple(
        each
        for dtype in (FLOAT16, BF16)
        for each in halfway(
            {"self": tuple(1.5 * n for n in HALFWAY)}, threshold=-9.0,
            more={"only": (FLOAT,), "dtypes": {"out": dtype}},
        )
    ),
    invalid=(
        *defects.nulls("self", "out", *NUMBERS),
        *defects.no_bfloat16("self"),
        *defects.dtypes("self", found=UINT16),
        *defects.dtypes("self", found=BOOL),
        *defects.dtypes("self"),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.ranks("self"),
        *shared.too_many_dimensions(),
        *shared.shapes_of("self"),
        *(
            Invalid(f"complex-{name}", {name: Scalar(COMPLEX64, 1)}, (name,), DTypeError)
            for name in NUMBERS
        ),
    ),
    contradictions=(
        Contradiction(
            "F31", "a fraction with integers",
            limits("", -1.5, 7, -1.0, 2.0, dtypes={"self": INT32}),
            {"page": [-1.0, 2.0], "source": [7.0, 2.0]}, "source",
        ),
    ),
)  # fmt: skip

INPLACE_THRESHOLD = in_place(THRESHOLD)
