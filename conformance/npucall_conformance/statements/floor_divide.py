"""aclnnFloorDivide [src:floor-divide]."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from npucall.dtypes import BOOL, COMPLEX64, DOUBLE, FLOAT, FLOATS, INT64, DType
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import DTypes, In, Setup, crossed, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import everywhere
from npucall_conformance.stating.written import of, pair

PAIR = shared.PAIR
NUMBERS = {"self": (7.0, 0.0, 5.0, 6.0), "other": (1.0, 2.0, 1.0, 4.0)}


def quotient(dtypes: DTypes) -> DType:
    promoted = promotion(*PAIR)(dtypes)
    return FLOAT if promoted is BOOL else promoted


def scalar(_: Arguments, s: float, o: float) -> float:
    found = reals.divide(s, o)
    if not math.isfinite(found):
        return found
    return float(math.floor(Fraction(s) / Fraction(o) if math.isfinite(o) else found))


def vector(_: Arguments, s: Any, o: Any) -> Any:
    found = s / o
    whole = np.rint((s - np.remainder(s, o)) / o)
    has_digits = (np.abs(found) < 2.0**51) & np.isfinite(o)
    return np.where(has_digits, whole, np.floor(found))


def torch_says(k: Arguments, torch: Any) -> Any:
    one, two = (k[name] for name in PAIR)
    finite = torch.isfinite(one) & torch.isfinite(two)
    return torch.where(finite, torch.floor_divide(one, two), torch.floor(one / two))


FLOOR_DIVIDE = elementwise(
    "aclnnFloorDivide",
    prototype="const aclTensor* self, const aclTensor* other, aclTensor* out",
    takes=everywhere(*FLOATS, DOUBLE, BOOL, *shared.INTEGERS),
    inputs=(In("self", normal(9.0)), In("other", uniform(0.5, 4.0))),
    output=shared.result(quotient),
    scalar=scalar,
    vector=vector,
    space=PAIR,
    kernel=quotient,
    cost=0,
    npu=aten("floor_divide", *PAIR),
    torch=torch_says,
    dtypes=(*FLOATS, DOUBLE),
    mixed=(
        *mixed_floats(*PAIR, output="out"),
        *(Setup(values=NUMBERS, dtypes=dict(zip(PAIR, each, strict=True)))
          for each in shared.EVERY_PAIR),
    ),
    edges=(
        crossed(dict.fromkeys(PAIR, shared.EDGES)),
        Setup("nearly-whole", values={"self": (1.0, 3.0, -1.0), "other": (0.1, 0.3, 0.1)}),
    ),
    written=(
        pair("digits", of(INT64, 2**62 + 3, -7, -(2**61) - 1), of(INT64, 2, 2, 2),
             of(INT64, 2**61 + 1, -4, -(2**60) - 1)),
    ),
    invalid=(
        *defects.nulls(*PAIR, "out"),
        *(row for name in PAIR
          for row in (*shared.listed(name), *defects.dtypes(name, found=COMPLEX64))),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *shared.shapes(),
    ),
)  # fmt: skip
INPLACE_FLOOR_DIVIDE = in_place(FLOOR_DIVIDE, shapes_first=True)
