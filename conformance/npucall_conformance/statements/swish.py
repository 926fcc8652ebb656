"""aclnnSwish, aclnnFastGelu and their gradients [src:swish]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare.parameters import Scalar
from npucall.dtypes import BF16, COMPLEX64, DOUBLE, FLOAT16, INT32
from npucall.errors import DTypeError, ShapeError
from npucall_conformance.statements import _activations as shared
from npucall_conformance.statements.glu import opened
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.parts import In, Invalid, Out, Setup, crossed
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B, FLOATS_WITH_BFLOAT16

INF, NAN = shared.INF, shared.NAN
FAST = 1.702
BOTH = ("grad_output", "self")
TORCH_NPU = "torch_npu calls it in npu_fast_gelu or npu_swish, where the suite does not look"
OLDER = ("Ascend910", "Ascend310P")
GRADIENTS = crossed({
    "grad_output": (1.0, 0.0, -2.0, 300.0, NAN),
    "self": (0.0, 1.0, -1.0, -0.75, 2.5, -2.5, 12.0, -12.0, 40.0, -40.0, INF, -INF, NAN),
})  # fmt: skip
COMPLEX = Invalid("complex-beta", {"beta": Scalar(COMPLEX64, 1)}, ("beta",), DTypeError)


def beta(k: Arguments) -> float:
    given = k.values.get("beta", FAST)
    return 1.0 if given is None else float(given)


def scalar(k: Arguments, x: float) -> float:
    return x * reals.sigmoid(beta(k) * x)


def vector(k: Arguments, x: Any) -> Any:
    scaled = beta(k) * x
    value = x * opened(scaled)
    return value, np.abs(value) * (1 + np.abs(scaled))  # its rounding shows in e^


def slope(k: Arguments, g: float, x: float) -> float:
    a = beta(k) * x
    return g * (reals.sigmoid(a) * (1 + a * reals.sigmoid(-a)))


def slopes(k: Arguments, g: Any, x: Any) -> Any:
    a = beta(k) * x
    opening, bend = opened(a), a * opened(a) * opened(-a)
    return g * (opening + bend), np.abs(g) * (opening + np.abs(bend)) * (1 + np.abs(a))


def swish_of(k: Arguments, torch: Any) -> Any:
    return k["self"] * torch.sigmoid(beta(k) * k["self"])


def gradient_of(k: Arguments, torch: Any) -> Any:
    x = k["self"].clone().requires_grad_()
    (x * torch.sigmoid(beta(k) * x)).backward(k["grad_output"])
    return x.grad


BETAS: dict[str, Any] = {
    "defaults": {"beta": None},
    "attributes": {"beta": (1.5, None, -0.25)},
    "mixed": tuple(
        Setup(f"beta-{name}", attributes={"beta": given})
        for name, given in (("integer", Scalar(INT32, 2)), ("short", Scalar(BF16, 0.3)))
    ),
}
FORWARD: dict[str, Any] = {
    "inputs": (shared.numbers(3.0),),
    "output": Out("out", "self", "self"),
    "scalar": scalar,
    "vector": vector,
    "kernel": dtype_of("self"),
    "torch": swish_of,
    "npu": TORCH_NPU,
    "edges": (shared.edges(-1.25, -80.0),),
}
BACKWARD: dict[str, Any] = {
    "inputs": (In("grad_output", normal()), In("self", normal(2.0))),
    "output": Out("grad_input", "self", "self"),
    "scalar": slope,
    "vector": slopes,
    "kernel": dtype_of("self"),
    "torch": gradient_of,
    "npu": TORCH_NPU,
    "edges": (GRADIENTS,),
}

SWISH = elementwise(
    "aclnnSwish",
    prototype="const aclTensor* self, const aclScalar* betaOptional, aclTensor* out",
    takes=FLOATS_BUT_ON_310B,
    legacy=OLDER,
    **FORWARD,
    **BETAS,
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out"),
        *defects.no_bfloat16("self", "out"),
        *defects.dtypes("out", found=FLOAT16),
        COMPLEX,
        *defects.ranks("self", "out"),
        *shared.shapes_of("out"),
    ),
)

FAST_GELU = elementwise(
    "aclnnFastGelu",
    prototype="const aclTensor* self, aclTensor* out",
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    **FORWARD,
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("out", found=FLOAT16),
        Invalid("double", defects.all_of(DOUBLE, "self", "out"), ("self",), DTypeError),
        *shared.shapes_of("self"),
        *shared.too_many_dimensions(),
        *defects.formats("out"),
    ),
)

SWISH_BACKWARD = elementwise(
    "aclnnSwishBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, const aclScalar* betaOptional, "
    "aclTensor* gradInput",
    takes=FLOATS_BUT_ON_310B,
    legacy=OLDER,
    **BACKWARD,
    **BETAS,
    invalid=(
        *defects.nulls(*BOTH, "grad_input"),
        *defects.dtypes(*BOTH),
        *defects.no_bfloat16(*BOTH),
        COMPLEX,
        *defects.dtypes(*BOTH, found=FLOAT16),
        *shared.of_what_follows("self", "grad_input"),
        *defects.ranks(*BOTH, "grad_input"),
        *defects.shapes("grad_output", (4, 3), (1, 4), ()),
        *defects.shapes("grad_input", (4, 3), (1, 3, 4), blames=("self",)),
    ),
)

FAST_GELU_BACKWARD = elementwise(
    "aclnnFastGeluBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, aclTensor* gradInput",
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    **BACKWARD,
    invalid=(
        *defects.nulls(*BOTH, "grad_input"),
        *defects.dtypes("self", "grad_input", found=FLOAT16),
        Invalid("double", defects.all_of(DOUBLE, *BOTH, "grad_input"), ("self",), DTypeError),
        *defects.shapes("grad_output", (4, 3), (1, 4), ()),
        *defects.shapes("grad_input", (4, 3), (1, 3, 4)),
        Invalid("rank-9-all", {n: {"shape": defects.NINE} for n in (*BOTH, "grad_input")},
                ("self",), ShapeError, block="rank"),
        *defects.formats("grad_output", "grad_input"),
    ),
)  # fmt: skip
