"""aclnnMul, forwards.md 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from npucall.dtypes import BOOL
from npucall_client.conformance import defects
from npucall_client.conformance.elementwise import elementwise
from npucall_client.conformance.statement import crossed, mixed_floats, promotion
from npucall_client.conformance.statements import _arithmetic as shared

if TYPE_CHECKING:
    from npucall_client.conformance.given import Given

PAIR = shared.PAIR


def scalar(_: Given, s: float, o: float) -> float:
    return s * o


def vector(_: Given, s: Any, o: Any) -> Any:
    return np.multiply(o, s)


MUL = elementwise(
    "aclnnMul",
    inputs=shared.operands(),
    output=shared.result(promotion(*PAIR)),
    scalar=scalar,
    vector=vector,
    space=PAIR,
    kernel=promotion(*PAIR),
    torch=lambda k, torch: torch.mul(k["self"], k["other"]),
    mixed=(
        *mixed_floats(*PAIR, output="out"),
        *shared.beside(*shared.MIXED_PAIRS),
    ),
    edges=(crossed(dict.fromkeys(PAIR, shared.EDGES)),),
    invalid=(
        *defects.nulls(*PAIR, "out"),
        *shared.listed(*PAIR, "out"),
        *shared.complex_beside(),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *shared.shapes(),
    ),
)
