"""aclnnLeakyReluBackward [src:leaky-relu]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import (
    BF16,
    BOOL,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
)
from npucall.errors import AttributeValueError, DTypeError
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import choice, mixed, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    HALFWAY,
    In,
    Invalid,
    Out,
    Setup,
    crossed,
    halfway,
    mixed_floats,
)
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.statement import WITHOUT_BFLOAT16
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE

BOTH = ("grad_output", "self")
NAN, INF = reals.NAN, reals.INFINITY
SLOPES = (
    Scalar(FLOAT, 0.1), Scalar(FLOAT16, 0.25), Scalar(DOUBLE, 0.1), Scalar(INT8, -3),
    Scalar(INT16, -300), Scalar(INT32, 70000), Scalar(INT64, 2**24 + 1), Scalar(UINT8, 200),
    Scalar(BOOL, value=True),
)  # fmt: skip
"""One of each dtype; what FLOAT does not hold is rounded to it."""


def scalar(k: Arguments, g: float, x: float) -> float:
    return g if x > 0 else g * k["negative_slope"]  # also where x is NaN


def vector(k: Arguments, g: Any, x: Any) -> Any:
    return np.multiply(g, np.where(x > 0, 1.0, k["negative_slope"]))


def torch_says(k: Arguments, torch: Any) -> Any:
    backward = torch.ops.aten.leaky_relu_backward
    return backward(k["grad_output"], k["self"], k["negative_slope"], k["self_is_result"])


def steep(slope: float | Scalar, **more: Any) -> Setup:
    return Setup(attributes={"negative_slope": slope, "self_is_result": False}, **more)


LEAKY_RELU_BACKWARD = elementwise(
    "aclnnLeakyReluBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclScalar* negativeSlope, "
        "bool selfIsResult, aclTensor* out"
    ),
    takes=FLOATS_AND_DOUBLE,
    defaults={"self_is_result": False},
    defaulted=Setup(attributes={"negative_slope": -0.5}),  # which a result must not have
    inputs=(In("grad_output", normal()), In("self", mixed(normal(), choice(0.0, -0.0), 0.1))),
    output=Out("out", shape=lambda k: k.shape(*BOTH), dtype=promotion(*BOTH)),
    scalar=scalar,
    vector=vector,
    space=BOTH,
    dtypes=(*FLOATS, DOUBLE),
    kernel=promotion(*BOTH),
    cost=0,
    npu=aten("leaky_relu_backward", *_npu.BOTH, "negative_slope", "self_is_result"),
    torch=torch_says,
    attributes={"negative_slope": (0.01, 0.0, 1.5), "self_is_result": (False, True)},
    mixed=(
        *mixed_floats(*BOTH, output="out"),
        *(Setup(dtypes={name: DOUBLE}) for name in (*BOTH, "out")),
        *(Setup(dtypes={**dict.fromkeys(BOTH, DOUBLE), "out": each}) for each in FLOATS),
        *map(steep, SLOPES),
        steep(Scalar(BF16, 0.1), products=("Ascend910B", "Ascend910_93", "Ascend950")),
    ),
    empty=(
        Setup("gradient-empty-alone", shapes={"grad_output": (2, 0), "self": (2, 1)}),
        Setup("self-empty-alone", shapes={"grad_output": (), "self": (0, 3)}),
    ),
    edges=(
        crossed({
            "grad_output": (1.0, 0.0, -2.0, 300.0, 1e-4, INF, -INF, NAN),
            "self": (0.0, -0.0, 1e-7, -1e-7, 1.0, -1.0, 300.0, INF, -INF, NAN),
        }),
    ),
    reductions=tuple(map(steep, (-0.5, -0.0, INF, -INF, NAN))),
    halfway=halfway(
        {"grad_output": HALFWAY, "self": -1.0}, negative_slope=1.5, self_is_result=False
    ),
    invalid=(
        *defects.nulls(*BOTH, "negative_slope", "out"),
        *defects.dtypes(*BOTH, found=INT32),
        *defects.no_bfloat16(*BOTH),
        *(
            Invalid(f"dtype-slope-{slope.dtype.name.lower()}", {"negative_slope": slope},
                    ("negative_slope",), DTypeError, products=products)
            for slope, products in (
                (Scalar(UINT16, 1), ()),
                (Scalar(COMPLEX64, 1), ()),
                (Scalar(BF16, 1), WITHOUT_BFLOAT16),
            )
        ),
        *defects.ranks(*BOTH),
        *defects.shapes("grad_output", (5, 3), blames=BOTH),
        *defects.shapes("self", (5, 3), blames=BOTH),
        *defects.shapes("out", (4, 3), (1, 3, 4), (4,)),
        Invalid("result-of-a-negative-slope", {"negative_slope": -0.5, "self_is_result": True},
                ("negative_slope", "self_is_result"), AttributeValueError),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
    ),
)  # fmt: skip
