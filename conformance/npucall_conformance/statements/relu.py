"""aclnnRelu [src:relu]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16, FLOATS, INT8, INT16, INT32, INT64, UINT8
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Out
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import everywhere

TAKEN = (*FLOATS, INT32, INT8, INT64, UINT8)


def scalar(_: Arguments, x: float) -> float:
    return 0.0 if x <= 0 else x  # NaN stays


def vector(_: Arguments, x: Any) -> Any:
    return np.maximum(x, 0)


RELU = elementwise(
    "aclnnRelu",
    prototype="const aclTensor* self, const aclTensor* out",
    takes=everywhere(*TAKEN),
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(shared.numbers(3.0),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    dtypes=TAKEN,
    kernel=dtype_of("self"),
    cost=0,
    npu=aten("relu", "self"),
    torch=lambda k, torch: torch.relu(k["self"]),
    edges=(
        shared.edges(0.1, -0.1, 2.0**-24, -(2.0**-24), only=FLOATS),
        *(shared.whole(each, only=(each,)) for each in (INT32, INT8, INT64, UINT8)),
    ),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", found=INT16),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=INT16),
        *defects.dtypes("out", found=FLOAT16, blames=("self",)),
        *shared.shapes_of("self"),
        *shared.too_many_dimensions(),
    ),
)
INPLACE_RELU = in_place(RELU)
