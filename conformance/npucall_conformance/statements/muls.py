"""aclnnMuls [src:mul]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, DType
from npucall.errors import DTypeError
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.statements import _written_arithmetic as written
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    HALFWAY,
    DTypes,
    In,
    Invalid,
    Out,
    Setup,
    crossed,
    halfway,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import ARITHMETIC_EVERYWHERE


def product(dtypes: DTypes) -> DType:
    """Self's dtype; of an integer and a fraction, or of BOOL and an integer, what both promote to.

    A DOUBLE number beside an output of FLOAT counts as FLOAT.
    """
    own, number = dtypes["self"], dtypes["other"]
    if number.kind == "complex":
        return promotion("self", "other")(dtypes)
    if own.kind == "float" or (own.kind == "int" and number.kind != "float"):
        return own
    if own is BOOL and number is BOOL:
        return BOOL
    if number is DOUBLE and dtypes.get("out") is FLOAT:
        return FLOAT
    return promotion("self", "other")(dtypes)


def vector(k: Arguments, s: Any) -> Any:
    return np.multiply(k["other"], s)


def times(self: DType, other: Any, **more: Any) -> Setup:
    return Setup(
        values={"self": (0.0, 1.0, 5.0, 7.0)}, attributes={"other": other},
        dtypes={"self": self, **more},
    )  # fmt: skip


MULS = elementwise(
    "aclnnMuls",
    prototype="const aclTensor* self, const aclScalar* other, aclTensor* out",
    takes=ARITHMETIC_EVERYWHERE,
    in_kernel=("other",),
    short_as_float=True,  # as on Ascend 950; Atlas A2 rounds the number to FLOAT16
cost=0,
    inputs=(In("self", normal(2.0)),),
    output=Out("out", shape="self", dtype=product),
    scalar=lambda k, s: s * k["other"],
    vector=vector,
    kernel=product,
    npu=aten("mul.Scalar", "self", "other"),
    torch=lambda k, torch: torch.mul(k["self"], k["other"]),
    attributes={"other": (0.75, -2.5)},  # numbers that every dtype has exactly
    mixed=(
        *shared.CASTS,
        *(times(each, 3) for each in (*shared.INTEGERS, BOOL)),
        *(times(INT32, 0.5, out=each) for each in (FLOAT, FLOAT16, DOUBLE)),
        times(INT8, Scalar(BOOL, value=True)),
        times(BOOL, Scalar(INT8, 3)),
        times(BOOL, Scalar(BOOL, value=False)),
        times(INT32, Scalar(FLOAT16, 0.25)),
        times(INT64, Scalar(FLOAT, 0.25)),
        times(DOUBLE, 0.1),
        times(FLOAT, 0.1),
    ),
    edges=(
        crossed({"self": shared.EDGES}),
        *(
            Setup(values={"self": shared.EDGES}, base=(len(shared.EDGES),), attributes={"other": n})
            for n in (0.0, np.inf, np.nan)
        ),
    ),
    halfway=halfway({"self": HALFWAY}, other=1.5),
    written=written.MULS,
    invalid=(
        *defects.nulls("self", "other", "out"),
        *shared.listed("self", "out"),
        Invalid(
            "bfloat16-number", {"self": {"dtype": INT32}, "other": Scalar(BF16, 2.0)},
            ("self", "other"), DTypeError, products=WITHOUT_BFLOAT16,
        ),
        *shared.complex_beside(),
        Invalid("complex-other", {"other": Scalar(COMPLEX64, 2)}, ("out",), DTypeError),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
    ),
)  # fmt: skip
INPLACE_MULS = in_place(MULS)
