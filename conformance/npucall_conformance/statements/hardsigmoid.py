"""aclnnHardsigmoid [src:hardsigmoid]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16, FLOATS, INT32, INT64
from npucall.errors import DTypeError, FormatError
from npucall.tensors import Format
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Invalid, Out
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import everywhere

END = 3


def scalar(k: Arguments, x: float) -> float:
    value = 0.0 if x < -END else 1.0 if x > END else x / 6 + 0.5  # NaN comes to the last
    return int(value) if k.kernel is INT32 else value


def vector(k: Arguments, x: Any) -> Any:
    if k.kernel is INT32:
        return np.heaviside(x - END, 1.0)
    inner = (x + END) / 6
    return np.minimum(np.maximum(inner, 0.0), 1.0), np.minimum(np.abs(x) / 6, 0.5) + 0.5


def torch_says(k: Arguments, torch: Any) -> Any:
    return None if k.kernel is INT32 else torch.nn.functional.hardsigmoid(k["self"])


HARDSIGMOID = elementwise(
    "aclnnHardsigmoid",
    prototype="const aclTensor* self, aclTensor* out",
    takes=everywhere(*FLOATS, INT32),
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(shared.numbers(2.5, 3.0, -3.0),),
    output=Out("out", shape="self", dtype="self"),
    scalar=scalar,
    vector=vector,
    dtypes=(*FLOATS, INT32),
    kernel=dtype_of("self"),
    npu=aten("hardsigmoid", "self"),
    torch=torch_says,
    edges=(
        shared.edges(
            3 - 2.0**-22, 2.0**-22 - 3, 3 + 2.0**-22, -3 - 2.0**-22, 2.9375, -2.9375, only=FLOATS
        ),
        shared.whole(INT32, more=(4, -3, -4, 2**24 + 1, 2**31 - 1, -(2**31)), only=(INT32,)),
    ),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self"),
        *defects.dtypes("self", found=INT64),
        *defects.no_bfloat16("self"),
        *defects.ranks("self"),
        *shared.too_many_dimensions(),
        *shared.shapes_of("self"),
        *defects.dtypes("out", found=FLOAT16, blames=("self",)),
        *defects.dtypes("self", found=INT32),
        Invalid("int32-from-float", {"out": {"dtype": INT32}}, ("self",), DTypeError),
        Invalid("format-self-alone", {"self": {"format": Format.NCHW}}, ("self",), FormatError),
        Invalid("format-out-alone", {"out": {"format": Format.NHWC}}, ("self",), FormatError),
    ),
)  # fmt: skip

INPLACE_HARDSIGMOID = in_place(HARDSIGMOID)
