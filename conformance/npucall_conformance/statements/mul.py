"""aclnnMul [src:mul]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, DOUBLE, FLOAT, FLOAT16, INT32
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.statements import _written_arithmetic as written
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import HALFWAY, Setup, crossed, halfway, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import ARITHMETIC_EVERYWHERE

PAIR = shared.PAIR


def scalar(_: Arguments, s: float, o: float) -> float:
    return s * o


def vector(_: Arguments, s: Any, o: Any) -> Any:
    return np.multiply(o, s)


MUL = elementwise(
    "aclnnMul",
    prototype="const aclTensor* self, const aclTensor* other, aclTensor* out",
    takes=ARITHMETIC_EVERYWHERE,
    inputs=shared.operands(),
    output=shared.result(promotion(*PAIR)),
    scalar=scalar,
    vector=vector,
    space=PAIR,
    kernel=promotion(*PAIR),
    cost=0,
    npu=aten("mul.Tensor", "self", "other"),
    torch=lambda k, torch: torch.mul(k["self"], k["other"]),
    mixed=(
        *mixed_floats(*PAIR, output="out"),
        *shared.beside(*shared.EVERY_PAIR),
        *shared.complex_pairs(),
        *shared.any_byte(FLOAT, INT32, BOOL),
        # 2^-40 beside a tie, which FLOAT cannot tell from it.
        *(
            Setup(
                "rounded-once",
                dtypes={**dict.fromkeys(PAIR, DOUBLE), "out": out},
                values={"self": [n + beside for n in HALFWAY], "other": [1.5] * len(HALFWAY)},
            )
            for out in (FLOAT16, BF16)
            for beside in (2.0**-40, -(2.0**-40))
        ),
    ),
    edges=(crossed(dict.fromkeys(PAIR, shared.EDGES)),),
    halfway=halfway({"self": HALFWAY, "other": 1.5}),
    written=written.MUL,
    invalid=(
        *defects.nulls(*PAIR, "out"),
        *shared.listed(*PAIR, "out"),
        *shared.complex_beside(),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *shared.shapes(),
    ),
)
INPLACE_MUL = in_place(MUL)
