"""aclnnExp and aclnnLog [src:exp-log]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BOOL, FLOAT, INT8, INT32, INT64, DType
from npucall_conformance.statements import _arithmetic as shared
from npucall_conformance.statements import _written as written
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import capped, elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import DTypes, In, Out, Setup, crossed
from npucall_conformance.stating.tables import ARITHMETIC_EVERYWHERE, FRACTIONAL, everywhere


def fractional(dtypes: DTypes) -> DType:
    """The dtype of the input; FLOAT where that has no fractions."""
    return dtypes["self"] if dtypes["self"].kind in ("float", "complex") else FLOAT


def vector(k: Arguments, x: Any) -> Any:
    power = capped(np.exp(x), k.top)
    return power, np.nan_to_num(power, nan=0, posinf=0) * (1 + np.abs(np.nan_to_num(x, neginf=0)))


EXP = elementwise(
    "aclnnExp",
    prototype="const aclTensor* self, aclTensor* out",
    takes=everywhere(*FRACTIONAL, BOOL, INT64),
    legacy=("Ascend910", "Ascend310P", "Ascend310B"),
    inputs=(In("self", normal(2.0)),),
    output=Out("out", shape="self", dtype=fractional),
    scalar=lambda k, x: reals.exp(x, k.top),
    vector=vector,
    kernel=fractional,
    npu=aten("exp", "self"),
    torch=lambda k, torch: torch.exp(k["self"]),
    mixed=(
        *shared.CASTS,
        *(Setup(values={"self": (0.0, 1.0, 5.0)}, dtypes={"self": each}) for each in (INT64, BOOL)),
    ),
    edges=(crossed({"self": (*shared.EDGES, 12.0, -12.0, 89.0, -89.0)}),),
    written=written.EXP,
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", found=INT32),
        *defects.dtypes("self", found=INT8),
        *defects.no_bfloat16("self"),
        *shared.complex_beside(),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
        *shared.of_rank_9(),
    ),
)
LOG = elementwise(
    "aclnnLog",
    prototype="const aclTensor* self, aclTensor* out",
    takes=ARITHMETIC_EVERYWHERE,
    legacy=("Ascend910", "Ascend310P", "Ascend310B"),
    inputs=(shared.positive(),),
    output=Out("out", shape="self", dtype=fractional),
    scalar=lambda _, x: reals.log(x),
    vector=lambda _, x: (np.log(x), 1 + np.abs(np.log(x))),
    kernel=fractional,
    npu=aten("log", "self"),
    torch=lambda k, torch: torch.log(k["self"]),
    mixed=(
        *shared.CASTS,
        *(
            Setup(values={"self": (0.0, 1.0, 5.0)}, dtypes={"self": each})
            for each in (*shared.INTEGERS, BOOL)
        ),
    ),
    edges=(crossed({"self": (*shared.EDGES, 1e-30, 0.999)}),),
    written=written.LOG,
    invalid=(
        *defects.nulls("self", "out"),
        *shared.listed("self", "out"),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *shared.complex_beside(),
        *defects.shapes("out", (4, 3), (1, 4), (1, 3, 4)),
        *shared.of_rank_9(),
    ),
)
INPLACE_EXP = in_place(EXP)
INPLACE_LOG = in_place(LOG)
