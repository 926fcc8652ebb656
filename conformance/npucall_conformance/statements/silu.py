"""aclnnSilu [src:silu]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT16
from npucall.errors import DTypeError
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import RANK_SHAPES, WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

NAN, INF = reals.NAN, reals.INFINITY


def scalar(_: Arguments, x: float) -> float:
    return x * reals.sigmoid(x)


def vector(_: Arguments, x: Any) -> Any:
    return x * np.exp(-np.logaddexp(0.0, -x))


SILU = elementwise(
    "aclnnSilu",
    prototype="const aclTensor* self, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    inputs=(In("self", normal(3)),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("self"),
    npu=aten("silu", "self"),
    torch=lambda k, torch: torch.nn.functional.silu(k["self"]),
    rank_shapes=(*RANK_SHAPES, (1, 2, 1, 1, 2, 1, 1, 1, 3)),  # no rank is too high
    edges=(
        crossed({
            "self": (
                0.0, -0.0, 1.0, -1.0, -1.2784645, 12.0, -12.0, 20.0, -20.0, 89.0, -80.0, -104.0,
                300.0, 1e4, -1e4, 1e-4, INF, -INF, NAN,
            ),
        }),
    ),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out"),
        *defects.dtypes("out", found=FLOAT16),
        *defects.dtypes("self", found=FLOAT16, blames=("out",)),
        Invalid(
            "bf16-everywhere", defects.all_of(BF16, "self", "out"), ("self",), DTypeError,
            products=WITHOUT_BFLOAT16,
        ),
        # A step blames the tensor that it names first, self in both.
        *defects.shapes("self", (4, 3), (1, 4)),
        *defects.shapes("out", (4, 3), (1, 3, 4), blames=("self",)),
    ),
)  # fmt: skip
