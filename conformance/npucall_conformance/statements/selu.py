"""aclnnSelu, aclnnSeluBackward and aclnnCelu [src:selu]."""

from __future__ import annotations

from math import expm1
from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, BOOL, COMPLEX64, DOUBLE, FLOAT16, FLOATS, INT32
from npucall.errors import DTypeError
from npucall_conformance.statements import _activations as shared
from npucall_conformance.stating import defects
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.in_places import in_place
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import (
    PAIRS_OF_FLOATS,
    In,
    Invalid,
    Out,
    Setup,
    crossed,
)
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import RANK_SHAPES
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B

INF, NAN = shared.INF, shared.NAN
ALPHA, SCALE = 1.6732632423543772, 1.0507009873554805
PAIR = ("grad_output", "result")
ANY_RANK = (*RANK_SHAPES, (1, 2, 1, 1, 2, 1, 1, 1, 3))
COMMON: dict[str, Any] = {"takes": FLOATS_BUT_ON_310B, "legacy": ("Ascend910", "Ascend310P")}


def selu(_: Arguments, x: float) -> float:
    return SCALE * (x if x > 0 else ALPHA * expm1(x))


def selus(_: Arguments, x: Any) -> Any:
    return np.where(x > 0, SCALE * x, SCALE * ALPHA * np.expm1(np.minimum(x, 0.0)))


def slope(_: Arguments, g: float, r: float) -> float:
    return g * SCALE if r > 0 else g * r + g * (SCALE * ALPHA)


def slopes(_: Arguments, g: Any, r: Any) -> Any:
    value = np.where(r > 0, SCALE * g, g * (r + SCALE * ALPHA))
    return value, np.abs(g) * (np.abs(r) + SCALE * ALPHA)


def below(x: float) -> float:
    return INF if x >= 700 else expm1(x)


def celu(k: Arguments, x: float) -> float:
    return x if x > 0 else k["alpha"] * below(x / k["alpha"])


def celus(k: Arguments, x: Any) -> Any:
    inner = np.minimum(x, 0.0) / k["alpha"]
    value = np.where(x > 0, x, np.expm1(inner) * k["alpha"])
    # Rounding the quotient shows in e^.
    return value, np.abs(value) + np.where(x > 0, 0.0, np.abs(x) * np.exp(inner))


def results(draw: Draw) -> Any:
    """What the forward operator gives."""
    x = draw.random.normal(0, 1.5, draw.shape)
    return selus(None, x)  # type: ignore[arg-type]


SELU = elementwise(
    "aclnnSelu",
    prototype="const aclTensor* self, aclTensor* out",
    inputs=(shared.numbers(),),
    output=Out("out", "self", "self"),
    scalar=selu,
    vector=selus,
    kernel=dtype_of("self"),
    npu=aten("selu", "self"),
    torch=lambda k, torch: torch.selu(k["self"]),
    rank_shapes=ANY_RANK,
    mixed=shared.converted(*PAIRS_OF_FLOATS),
    edges=(shared.edges(-1e-4, -0.25),),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out"),
        *defects.no_bfloat16("self", "out"),
        *shared.shapes_of("out"),
    ),
    **COMMON,
)

SELU_BACKWARD = elementwise(
    "aclnnSeluBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* result, aclTensor* gradInput",
    inputs=(In("grad_output", normal()), In("result", results)),
    output=Out("grad_input", "result", "result"),
    scalar=slope,
    vector=slopes,
    kernel=dtype_of("result"),
    npu="torch_npu calls it in the gradient of selu, which takes what went in",
    torch=lambda k, torch: torch.ops.aten.elu_backward(
        k["grad_output"], ALPHA, SCALE, 1.0, True, k["result"]  # noqa: FBT003
    ),
    rank_shapes=ANY_RANK,
    edges=(crossed({
        "grad_output": (1.0, 0.0, -2.0, 300.0, NAN),
        "result": (0.0, -0.0, 1.0, -1.0, -1.75, 300.0, INF, NAN),
    }),),
    invalid=(
        *defects.nulls(*PAIR, "grad_input"),
        *defects.dtypes("grad_output", "grad_input", found=FLOAT16),
        Invalid("double", defects.all_of(DOUBLE, *PAIR, "grad_input"), ("result",), DTypeError),
        Invalid("integers", defects.all_of(INT32, *PAIR, "grad_input"), ("result",), DTypeError),
        *defects.shapes("grad_output", (4, 3), (1, 4), ()),
        *defects.shapes("grad_input", (4, 3), (1, 3, 4)),
    ),
    **COMMON,
)  # fmt: skip

CELU = elementwise(
    "aclnnCelu",
    prototype="const aclTensor* self, const aclScalar* alpha, aclTensor* out",
    inputs=(shared.numbers(),),
    output=Out("out", "self", "self"),
    scalar=celu,
    vector=celus,
    kernel=dtype_of("self"),
    npu=aten("celu", "self", "alpha"),
    torch=lambda k, torch: torch.celu(k["self"], k["alpha"]),
    attributes={"alpha": (1.0, 0.5, 2.0)},
    mixed=(
        *shared.converted(*PAIRS_OF_FLOATS, *((one, DOUBLE) for one in FLOATS)),
        *(Setup(f"alpha-{name}", attributes={"alpha": given})
          for name, given in (("integer", Scalar(INT32, 2)), ("short", Scalar(BF16, 0.3)),
                              ("negative", -0.5))),
    ),
    edges=(shared.edges(-1e-4, -0.25),),
    invalid=(
        *defects.nulls("self", "alpha", "out"),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        Invalid("complex-alpha", {"alpha": Scalar(COMPLEX64, 1)}, ("alpha",), DTypeError),
        *defects.uncastable("out"),
        *defects.uncastable("out", BOOL),
        *defects.ranks("self"),
        *shared.shapes_of("out"),
        *defects.values("alpha", 0.0, NAN),
    ),
    **COMMON,
)  # fmt: skip

INPLACE_SELU = in_place(SELU)
INPLACE_CELU = in_place(CELU)
