"""aclnnGeluV2, both forms [src:gelu]."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import BF16, FLOAT16
from npucall.errors import DTypeError
from npucall_conformance.statements import _gelu as shared
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import (
    Contradiction,
    In,
    Invalid,
    Out,
    Refusal,
    Setup,
    crossed,
)
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import RANK_SHAPES, WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE


def scalar(k: Arguments, x: float) -> float:
    return shared.tanh_gelu(x) if k["approximate"] == 1 else shared.erf_gelu(x)


def vector(k: Arguments, x: Any) -> Any:
    return {1: shared.tanh_gelu_of}.get(k["approximate"], shared.erf_gelu_of)(x)


GELU_V2 = elementwise(
    "aclnnGeluV2",
    prototype="const aclTensor* x, int64_t approximate, aclTensor* y",
    takes=FLOATS_EVERYWHERE,
    defaults={"approximate": 0},
    unwarned={"approximate": (0, 1)},
    inputs=(In("x", normal(2)),),
    output=Out("y", shape="x", dtype="x"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("x"),
    npu=_npu.npu_gelu,
    torch=lambda k, torch: shared.torch_gelu(
        k["x"], torch, "tanh" if k["approximate"] == 1 else "none"
    ),
    attributes={"approximate": (0, 1)},
    rank_shapes=(*RANK_SHAPES, (1, 2, 1, 1, 2, 1, 1, 1, 3)),  # no rank is too high
    edges=(crossed({"x": shared.FORWARD_EDGES}),),
    reductions=tuple(
        Setup(f"approximate-{name}", (4, 6), attributes={"approximate": value})
        for name, value in (("2", 2), ("minus-1", -1), ("2-to-32-and-1", 2**32 + 1))
    ),
    invalid=(
        *defects.nulls("x", "y"),
        *defects.dtypes("y", found=FLOAT16),
        *defects.dtypes("x", found=FLOAT16, blames=("y",)),
        Invalid(
            "bf16-everywhere", defects.all_of(BF16, "x", "y"), ("x",), DTypeError,
            products=WITHOUT_BFLOAT16,
        ),
        *defects.all_dtypes("x", "y"),
        *defects.shapes("y", (4, 3), (1, 3, 4), (1, 4)),
        *defects.shapes("x", (4, 3), blames=("y",)),
    ),
    contradictions=(
        Contradiction(
            "F26", "another value of approximate than 0 and 1",
            Setup(values={"x": [-3.0]}, attributes={"approximate": 2}),
            {"page": Refusal(), "source": [-0.00404969]}, "source",
        ),
    ),
)  # fmt: skip
