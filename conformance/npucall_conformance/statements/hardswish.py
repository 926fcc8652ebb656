"""aclnnHardswish [src:hardswish]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import INT32
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import PAIRS_OF_FLOATS, Contradiction, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import RANK_SHAPES
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INF, NAN = shared.INF, shared.NAN


def scalar(_: Arguments, x: float) -> float:
    if x >= 3:  # where it bends
        return x
    return x * max(x + 3, 0) / 6  # NaN, and of minus infinity infinity times 0


def vector(_: Arguments, x: Any) -> Any:
    share = np.select([x < -3, x <= 3], [0.0, (x + 3) / 6], np.where(np.isnan(x), np.nan, 1.0))
    return share * x, np.abs(x) * np.minimum((np.abs(x) + 3) / 6, 1.0)


HARDSWISH = elementwise(
    "aclnnHardswish",
    prototype="const aclTensor* self, const aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(shared.numbers(2.5, 3.0, -3.0),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("self"),
    npu=aten("hardswish", "self"),
    torch=lambda k, torch: torch.nn.functional.hardswish(k["self"]),
    rank_shapes=(*RANK_SHAPES, (1, 2, 1, 1, 3, 1, 1, 1, 2)),
    mixed=shared.converted(*PAIRS_OF_FLOATS),
    edges=(shared.edges(3 - 2.0**-22, 2.0**-22 - 3, 3 + 2.0**-22, -3 - 2.0**-22, 2.9375, -2.9375),),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self"),
        *defects.dtypes("self", found=INT32),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out"),
        *defects.dtypes("out", found=INT32),
        *defects.no_bfloat16("out"),
        *shared.shapes_of("self"),
    ),
    contradictions=(
        Contradiction(
            "F29", "minus infinity", Setup(values={"self": [-INF, 1.5]}),
            {"A2, torch": [NAN, 1.125], "950": [0.0, 1.125]}, "A2, torch",
        ),
    ),
)  # fmt: skip

INPLACE_HARDSWISH = in_place(HARDSWISH)
