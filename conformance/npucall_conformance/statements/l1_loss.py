"""aclnnL1Loss [src:l1-loss]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, FLOATS, INT8, INT32, INT64, UINT16
from npucall.errors import DTypeError
from npucall_conformance.statements import _npu
from npucall_conformance.statements._torch import loss
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import FLOAT_INSIDE, Arguments
from npucall_conformance.stating.domains import near, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    EVEN,
    SIGNS,
    Contradiction,
    In,
    Invalid,
    Out,
    Refusal,
    Setup,
    crossed,
    halfway,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import everywhere

INPUTS = ("self", "target")
NAN, INF = reals.NAN, reals.INFINITY
WHOLE = {"self": (0.0, 5.0, -3.0, 2.0**40), "target": (2.0, -7.0, 2.0**40)}


def scalar(_: Arguments, s: float, t: float) -> float:
    return abs(s - t)


def vector(_: Arguments, s: Any, t: Any) -> Any:
    return np.sqrt(np.square(s - t))


def torch_says(k: Arguments, torch: Any) -> Any:
    return loss(k, torch.nn.functional.l1_loss, k["self"], k["target"])


L1_LOSS = elementwise(
    "aclnnL1Loss",
    prototype="const aclTensor* self, const aclTensor* target, int64_t reduction, aclTensor* out",
    takes=everywhere(*FLOATS, INT64),
    defaults={"reduction": 1},
    inputs=(In("self", normal()), In("target", near("self"))),
    output=Out("out", shape=lambda k: k.reduced(*INPUTS), dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=INPUTS,
    factor=lambda k: k.share(*INPUTS),
    kernel=promotion(*INPUTS),
    cost=lambda k: FLOAT_INSIDE if k["reduction"] else 0,
    npu=aten("l1_loss", *_npu.LOSS),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=(
        *mixed_floats(*INPUTS, output="out"),
        *(Setup(dtypes={"target": each}) for each in (BOOL, INT8, INT32, INT64)),
        *(
            crossed(WHOLE, dtypes={"self": one, "target": INT64}, attributes={"reduction": code})
            for one in (INT64, INT32)
            for code in (0, 2)
        ),
        Setup(
            "compared-after-the-cast",
            dtypes={"self": FLOAT16, "target": INT32},
            values={"self": [2048.0, 2048.0], "target": [2049.0, 2051.0]},
        ),
        Setup(
            "beyond-float16", dtypes={"self": FLOAT16, "target": FLOAT16, "out": FLOAT},
            values={"self": [60000.0, 60000.0], "target": [0.0, 0.0]}, attributes={"reduction": 2},
        ),
    ),
    edges=(
        crossed({
            "self": (0.0, -0.0, 1.0, 300.0, INF, -INF, NAN),
            "target": (0.0, -0.0, 1.0, 1e-4, INF, -INF, NAN),
        }),
        crossed({"self": (1.0, 300.0), "target": (0.0, INF)}, note="infinite"),
    ),
    halfway=halfway({"self": EVEN, "target": tuple(-n for n in SIGNS)}, reduction=0),
    invalid=(
        *defects.nulls(*INPUTS, "out"),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        Invalid(
            "integer-beside-a-float",
            {"self": {"dtype": INT64}, "target": {"dtype": FLOAT16}}, ("self",), DTypeError,
        ),
        Invalid(
            "integer-beside-a-double",
            {"self": {"dtype": INT64}, "target": {"dtype": DOUBLE}}, ("self",), DTypeError,
        ),
        Invalid(
            "mean-of-integers", {"reduction": 1, **defects.all_of(INT64, *INPUTS)}, INPUTS,
            DTypeError,
        ),
        *defects.dtypes("target", found=UINT16, blames=INPUTS),
        *defects.dtypes(*INPUTS, blames=INPUTS),
        Invalid("dtype-s32-both", defects.all_of(INT32, *INPUTS), INPUTS, DTypeError),
        *defects.uncastable("out"),
        *defects.ranks(*INPUTS),
        *defects.shapes("self", (5, 3), blames=INPUTS),
        *defects.shapes("target", (5, 3), blames=INPUTS),
        *defects.shapes("out", (4, 3), (1, 3, 4), ()),
        *defects.shapes("out", (1,), (3, 4), base=Setup(attributes={"reduction": 1})),
    ),
    contradictions=(
        Contradiction(
            "F13", "an integer with a float", Setup(dtypes={"target": INT32}),
            {"page": Refusal(), "source": ...}, "source",
        ),
        Contradiction(
            "F15", "rank 0", Setup(base=()), {"page": Refusal(), "source": ...}, "source"
        ),
    ),
)  # fmt: skip
