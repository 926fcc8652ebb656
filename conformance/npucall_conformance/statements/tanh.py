"""aclnnTanh [src:tanh]."""

from __future__ import annotations

from math import copysign, exp, expm1
from typing import Any

import numpy as np

from npucall.dtypes import BF16, BOOL, FLOAT16, FLOATS, INT8, INT32, INT64, UINT16
from npucall.errors import FormatError
from npucall.tensors import Format
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import PAIRS_OF_FLOATS, Invalid, Out
from npucall_conformance.stating.tables import INTEGERS, everywhere


def scalar(_: Arguments, x: float) -> float:
    twice = -2 * abs(x)
    return copysign(-expm1(twice) / (1 + exp(twice)), x)


def vector(_: Arguments, x: Any) -> Any:
    return np.tanh(x)


TANH = elementwise(
    "aclnnTanh",
    prototype="const aclTensor* self, aclTensor* out",
    takes=everywhere(*FLOATS, *INTEGERS, BOOL),
    legacy=("Ascend310P", "Ascend310B"),
    inputs=(shared.numbers(),),
    output=Out("out", shape="self", dtype=shared.float_of),
    scalar=scalar,
    vector=vector,
    kernel=shared.float_of,
    npu=aten("tanh", "self"),
    torch=lambda k, torch: torch.tanh(k["self"]),
    mixed=(
        *shared.converted(*PAIRS_OF_FLOATS),
        *map(shared.whole, (*shared.SMALL_INTEGERS, BOOL)),
        *(shared.whole(one, out) for one in (INT8, INT64, BOOL) for out in (FLOAT16, BF16)),
        shared.whole(INT64, more=(2**24 + 1, -(2**40) - 1)),
    ),
    edges=(shared.edges(8.75, -8.875, 0.55, -0.5625),),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self"),
        *defects.dtypes("self", found=UINT16),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out"),
        *defects.no_bfloat16("out"),
        *defects.uncastable("out", INT32),
        *defects.uncastable("out", BOOL),
        Invalid("format-self-alone", {"self": {"format": Format.NCHW}}, ("self",), FormatError),
        Invalid("format-out-alone", {"out": {"format": Format.NHWC}}, ("self",), FormatError),
        Invalid(
            "format-private-out", {"out": {"format": Format.FRACTAL_NZ}}, ("self",), FormatError
        ),
        Invalid(
            "format-private", {name: {"format": Format.FRACTAL_NZ} for name in shared.TENSORS},
            ("self",), FormatError,
        ),
        *defects.ranks("self"),
        *shared.too_many_dimensions(),
        *shared.shapes_of("self"),
    ),
)  # fmt: skip
INPLACE_TANH = in_place(TANH)
