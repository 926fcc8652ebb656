"""aclnnCast [src:cast]."""

from __future__ import annotations

from itertools import product
from math import isnan
from typing import Any

import numpy as np

from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOAT,
    FLOAT8_E5M2,
    FLOAT16,
    FLOATS,
    INT8,
    INT32,
    UINT16,
    UINT32,
    UINT64,
)
from npucall.errors import DTypeError
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.statements import _npu
from npucall_conformance.statements import _written_arithmetic as written
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import (
    HALFWAY,
    Contradiction,
    In,
    Invalid,
    Out,
    Refusal,
    Setup,
    crossed,
)
from npucall_conformance.stating.tables import ARITHMETIC, everywhere

EVERY = (*FLOATS, DOUBLE, BOOL, *shared.INTEGERS, UINT16, UINT32, UINT64)
WHOLE = (0.0, 1.0, 2.0, 100.0)
FRACTIONS = (0.0, -0.0, 0.5, -0.5, 2.75, -2.75, 100.5)


def scalar(k: Arguments, x: float) -> float:
    kind = k["dtype"].kind
    if kind == "bool":
        return float(x != 0)
    if kind == "int":
        return 0.0 if isnan(x) else float(int(x))
    return x


def vector(k: Arguments, x: Any) -> Any:
    kind = k["dtype"].kind
    if kind in ("float", "complex"):
        return x
    return np.not_equal(x, 0) * 1.0 if kind == "bool" else np.trunc(np.nan_to_num(x))


def into(self: Any, dtype: Any, *values: complex, note: str = "") -> Setup:
    return Setup(
        note, values={"self": values}, dtypes={"self": self}, attributes={"dtype": dtype},
        telling=note == "halfway" and self is DOUBLE and dtype is not FLOAT,
    )  # fmt: skip


CAST = elementwise(
    "aclnnCast",
    prototype="const aclTensor* self, const aclDataType dtype, aclTensor* out",
    takes=everywhere(*ARITHMETIC, UINT16, UINT32, UINT64),
    inputs=(In("self", normal(2.0), dtypes=FLOATS),),
    output=Out("out", shape="self", dtype=lambda dtypes: dtypes["dtype"]),
    scalar=scalar,
    vector=vector,
    kernel=lambda dtypes: dtypes["dtype"],
    cost=0,
    npu=_npu.cast,
    torch=lambda k, _: k["self"] if k["dtype"].kind == "float" else None,
    attributes={"dtype": (FLOAT, FLOAT16)},
    mixed=(
        *(into(one, other, *WHOLE) for one, other in product(EVERY, EVERY)),
        *(
            Setup("any-byte", (10,), dtypes={"self": BOOL}, raw={"self": shared.ANY_BYTE},
                  attributes={"dtype": dtype}, telling=True)
            for dtype in (FLOAT, INT32, BF16, BOOL)
        ),
        *(
            into(one, other, *shared.COMPLEX)
            for one in (COMPLEX64, COMPLEX128)
            for other in (COMPLEX64, COMPLEX128)
        ),
        *(into(one, COMPLEX64, *FRACTIONS) for one in (FLOAT, FLOAT16)),
        *(into(one, INT32, *FRACTIONS) for one in (FLOAT, FLOAT16, BF16, DOUBLE)),
    ),
    edges=(
        crossed({"self": (*shared.EDGES, 65504.0, 65520.0, 1e-8)}, dtypes={"self": FLOAT}),
        into(FLOAT, INT32, 1.0, np.nan, -1.0, note="nan-to-integer"),
        into(DOUBLE, BOOL, 0.0, -0.0, np.nan, 1e-300, np.inf, note="nan-to-bool"),
        into(DOUBLE, BF16, 1.0, 3e38, -1e-3, np.inf, np.nan),
        # Halfway, and so near it that FLOAT cannot tell: 2^-40 beside a tie.
        *(
            into(
                one, other, *(sign * near * (1.5 * n + beside) for n in HALFWAY
                for sign in (1, -1) for near in (1.0, 2.0**-4) for beside in far),
                note="halfway",
            )
            for other in (FLOAT16, BF16)
            for one, far in ((FLOAT, (0.0,)), (DOUBLE, (0.0, 2.0**-40, -(2.0**-40))))
        ),
        into(
            DOUBLE, FLOAT, *(1 + n * 2.0**-24 + beside for n in (1, 3, -1, -3)
            for beside in (0.0, 2.0**-50, -(2.0**-50))), note="halfway",
        ),
    ),
    written=written.CAST,
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", found=FLOAT8_E5M2),
        *defects.no_bfloat16("self"),
        Invalid("dtype-of-8-bits", {"dtype": FLOAT8_E5M2}, ("dtype",), DTypeError),
        *shared.of_rank_9(),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
        *defects.dtypes("out", found=INT8),
    ),
    contradictions=(
        Contradiction(
            "F34", "an output of another dtype",
            Setup(dtypes={"self": FLOAT, "out": FLOAT16}, attributes={"dtype": FLOAT}),
            {"no check": ..., "service": Refusal()}, "service",
        ),
    ),
)  # fmt: skip
