"""aclnnDiv [src:div]: shapes are checked before dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, FLOAT, FLOAT16, INT8, INT32, INT64, DType
from npucall.errors import DTypeError
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.statements import _written_arithmetic as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    HALFWAY,
    Contradiction,
    DTypes,
    In,
    Invalid,
    Refusal,
    Setup,
    crossed,
    halfway,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import ARITHMETIC_EVERYWHERE

PAIR = shared.PAIR


def quotient(dtypes: DTypes) -> DType:
    """The promoted dtype; of integers FLOAT, since a quotient has a fraction."""
    promoted = promotion(*PAIR)(dtypes)
    return promoted if promoted.kind in ("float", "complex") else FLOAT


def scalar(_: Arguments, s: float, o: float) -> float:
    return reals.divide(s, o)


def vector(_: Arguments, s: Any, o: Any) -> Any:
    return np.divide(s, o)


DIV = elementwise(
    "aclnnDiv",
    prototype="const aclTensor* self, const aclTensor* other, aclTensor* out",
    takes=ARITHMETIC_EVERYWHERE,
    legacy=("Ascend310P",),
    inputs=(In("self", normal(2.0)), In("other", uniform(0.5, 4.0))),
    output=shared.result(quotient),
    scalar=scalar,
    vector=vector,
    space=PAIR,
    kernel=quotient,
    cost=0,
    npu=aten("div.Tensor", "self", "other"),
    torch=lambda k, torch: torch.div(k["self"], k["other"]),
    mixed=(
        *mixed_floats(*PAIR, output="out"),
        *shared.beside(*shared.EVERY_PAIR),
        *shared.complex_pairs(),
    ),
    edges=(
        crossed(dict.fromkeys(PAIR, shared.EDGES)),
        Setup(
            "integers-by-0", values={"self": (5.0, 0.0, -5.0), "other": (0.0, 0.0, 2.0)},
            dtypes=dict.fromkeys(PAIR, INT32),
        ),
    ),
    halfway=tuple(
        each
        for dtype in (FLOAT16, BF16)
        for each in halfway(
            {"self": tuple(3 * n for n in HALFWAY), "other": 2.0},
            more={"only": (FLOAT,), "dtypes": {"out": dtype}},
        )
    ),
    written=written.DIV,
    invalid=(
        *defects.nulls("out", "other", "self"),
        *shared.shapes(),
        *shared.listed("other", "self"),
        *shared.complex_beside(),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        Invalid(
            "integer-quotient",
            {**defects.all_of(INT8, *PAIR), "out": {"dtype": INT64}}, ("out",), DTypeError,
        ),
        *defects.formats(*PAIR, "out"),
    ),
    contradictions=(
        Contradiction(
            "F33", "an integer output", Setup(dtypes=dict.fromkeys((*PAIR, "out"), INT32)),
            {"page": Refusal(), "check of A2 and A3": ...}, "page",
        ),
    ),
)  # fmt: skip
INPLACE_DIV = in_place(DIV)
