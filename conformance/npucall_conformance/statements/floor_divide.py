"""aclnnFloorDivide and aclnnFloorDivides [src:floor-divide]."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT, FLOATS, INT64, UINT16, DType
from npucall.errors import DTypeError
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.statements.muls import product
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    DTypes,
    In,
    Invalid,
    Out,
    Setup,
    crossed,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import everywhere
from npucall_conformance.stating.written import alone, of, pair

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
    one, two = (torch.as_tensor(k[name], dtype=torch.float64) for name in PAIR)
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


def by_number(dtypes: DTypes) -> DType:
    """The dtype of a quotient by a number, if nobody says another."""
    found = product(dtypes)
    return FLOAT if found is BOOL else found


def number(dtype: DType) -> Invalid:
    """A number of a dtype that is not taken."""
    return Invalid(
        f"dtype-{dtype.name.lower()}-other", {"other": Scalar(dtype, 2)}, ("other",), DTypeError,
        products=WITHOUT_BFLOAT16 if dtype is BF16 else (),
    )  # fmt: skip


FLOOR_DIVIDES = elementwise(
    "aclnnFloorDivides",
    prototype="const aclTensor* self, const aclScalar* other, aclTensor* out",
    takes=everywhere(*FLOATS, DOUBLE, BOOL, *shared.INTEGERS),
    legacy=("Ascend310P", "Ascend310B"),
    in_kernel=("other",),
    inputs=(In("self", normal(9.0)),),
    output=Out("out", shape="self", dtype=by_number),
    scalar=lambda k, s: scalar(k, s, k["other"]),
    vector=lambda k, s: vector(k, s, k["other"]),
    kernel=quotient,
    cost=0,
    npu="torch_npu calls it for floor_divide with a number; the result has the dtype of torch",
    torch=torch_says,
    dtypes=(*FLOATS, DOUBLE),
    attributes={"other": (Scalar(FLOAT, 0.75), -2.5)},
    mixed=(
        *shared.CASTS,
        *(Setup(values={"self": NUMBERS["self"]}, dtypes={"self": one},
                attributes={"other": Scalar(other, other is BOOL or 2)})
          for one, other in shared.EVERY_PAIR if other is not BF16),
    ),
    edges=(
        *(Setup(values={"self": shared.EDGES}, base=(len(shared.EDGES),), attributes={"other": n})
          for n in shared.EDGES),
        Setup("nearly-whole", values={"self": (1.0, 3.0, -1.0)}, attributes={"other": 0.1}),
    ),
    written=(
        alone("digits", of(INT64, 2**62 + 3, -7, -(2**61) - 1),
              of(INT64, 2**61 + 1, -4, -(2**60) - 1), other=2),
    ),
    invalid=(
        *defects.nulls(*PAIR, "out"),
        *shared.listed("self"),
        *defects.dtypes("self", found=COMPLEX64),
        number(UINT16), number(BF16), number(COMPLEX64),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.ranks("self"),
        *shared.of_rank_9(),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
    ),
)  # fmt: skip
INPLACE_FLOOR_DIVIDES = in_place(FLOOR_DIVIDES)
