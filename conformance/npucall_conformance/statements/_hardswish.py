"""What the statements of both hardswish gradients share [src:hardswish]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npucall.dtypes import FLOAT16, INT32
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.domains import choice, mixed, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import Way
from npucall_conformance.stating.parts import In, Out, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

BOTH = ("grad_output", "self")
NAN, INF = reals.NAN, reals.INFINITY
UNDER_3, OVER_3 = 3 - 2.0**-22, 3 + 2.0**-22
"""Neighbours of 3 in FLOAT; in shorter dtypes they are 3."""
ENDS = choice(-3.0, 3.0, 0.0)


def hardswish(  # noqa: PLR0913  # the parts of a statement
    operator: str,
    scalar: Callable[..., float],
    vector: Callable[..., Any],
    torch: Callable[..., Any],
    *,
    listed: tuple[str, ...],
    npu: Way | str,
) -> Statement:
    """``listed``: the inputs in the order in which their dtypes are looked up."""
    return elementwise(
        operator,
        prototype="const aclTensor* gradOutput, const aclTensor* self, aclTensor* out",
        takes=FLOATS_EVERYWHERE,
        legacy=("Ascend310P", "Ascend310B"),
        inputs=(In("grad_output", normal()), In("self", mixed(normal(2.5), ENDS, 0.1))),
        output=Out("out", shape="self", dtype="self"),
        scalar=scalar,
        vector=vector,
        kernel=dtype_of("self"),
        npu=npu,
        torch=torch,
        edges=(
            crossed({
                "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
                "self": (
                    -3.0, 3.0, -UNDER_3, UNDER_3, -OVER_3, OVER_3, -1.5, 0.0, -0.0, 1.0, -300.0,
                    300.0, INF, -INF, NAN,
                ),
            }),
        ),
        invalid=(
            *defects.nulls(*BOTH, "out"),
            *defects.all_dtypes(*listed),
            *defects.dtypes(*listed, found=INT32),
            *defects.no_bfloat16(*listed),
            *defects.dtypes("grad_output", found=FLOAT16),
            *defects.dtypes("self", found=FLOAT16, blames=("grad_output",)),
            *defects.dtypes("out"),
            *defects.dtypes("out", found=FLOAT16),
            *defects.ranks(*BOTH),
            *defects.shapes("grad_output", (4, 3), (1, 4), (1, 3, 4)),
            *defects.shapes("self", (4, 3), (1, 4), blames=("grad_output",)),
            *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
        ),
    )  # fmt: skip
