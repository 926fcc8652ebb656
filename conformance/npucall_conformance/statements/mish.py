"""aclnnMish [src:mish]."""

from __future__ import annotations

from math import exp, log1p, tanh
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Out
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE


def scalar(_: Arguments, x: float) -> float:
    return x * tanh(max(x, 0.0) + log1p(exp(-abs(x))))


def vector(_: Arguments, x: Any) -> Any:
    return x * np.tanh(np.logaddexp(0.0, x))


MISH = elementwise(
    "aclnnMish",
    prototype="const aclTensor* self, aclTensor* out",
    takes=FLOATS_EVERYWHERE,
    legacy=("Ascend950", "Ascend310P", "Ascend310B"),
    inputs=(shared.numbers(3.0),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    kernel=dtype_of("self"),
    npu=aten("mish", "self"),
    torch=lambda k, torch: torch.nn.functional.mish(k["self"]),
    edges=(shared.edges(-1.1924, 20.0625, -20.0, -84.0, -88.0, -95.0, -104.0),),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT16, blames=("self",)),
        *defects.ranks("self", "out"),
        *shared.shapes_of("out"),
    ),
)
