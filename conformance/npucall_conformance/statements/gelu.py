"""aclnnGelu, the tanh form [src:gelu]."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import FLOAT16
from npucall_conformance.statements import _gelu as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import Contradiction, In, Out, Setup, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE


def scalar(_: Arguments, x: float) -> float:
    return shared.tanh_gelu(x)


def vector(_: Arguments, x: Any) -> Any:
    return shared.tanh_gelu_of(x)


GELU = elementwise(
    "aclnnGelu",
    prototype="const aclTensor* self, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    inputs=(In("self", normal(2)),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("self"),
    npu=lambda given: given.aten.gelu(given["self"], approximate="tanh"),
    torch=lambda k, torch: shared.torch_gelu(k["self"], torch, "tanh"),
    edges=(crossed({"self": shared.FORWARD_EDGES}),),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("self"),
        *defects.dtypes("self", found=FLOAT16, blames=("out",)),
        *defects.dtypes("out", found=FLOAT16),
        *defects.formats("self", "out"),
        *defects.ranks("self"),
        *defects.shapes("out", (4, 3), (1, 3, 4), (1, 4)),
        *defects.shapes("self", (4, 3), blames=("out",)),
    ),
    contradictions=(
        Contradiction(
            "F25", "which form it is", Setup(values={"self": [-3.0]}),
            {"name of the page": [-0.00404969], "formula of the page, kernels": [-0.00363739]},
            "formula of the page, kernels",
        ),
    ),
)  # fmt: skip
