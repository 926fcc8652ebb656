"""aclnnBinaryCrossEntropyBackward [src:binary-cross-entropy]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.errors import AttributeValueError, FormatError, ShapeError
from npucall.tensors import Format
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import probabilities, uniform, upstream
from npucall_conformance.stating.elementwise import elementwise
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Invalid, Out, Setup, crossed, mixed_floats
from npucall_conformance.stating.promotion import promotion
from npucall_conformance.stating.tables import FLOATS_EVERYWHERE

INPUTS = ("grad_output", "self", "target", "weight")
EXPANDS = ("grad_output", "target", "weight")
LISTED = ("self", "grad_output", "target", "out", "weight")
"""In the order in which dtypes are checked."""
NAN, INF = reals.NAN, reals.INFINITY
LEAST = 1e-12
G_EDGES = (1.0, 0.0, -300.0, 1e-4, INF, NAN)
# Beyond 0 to 1, too, where the divisor is the least.
S_EDGES = (0.0, -0.0, 1.0, 0.5, 1e-4, -1.0, 2.0, INF, -INF, NAN)
OTHER = {"format": Format.NCHW}


def scalar(k: Arguments, g: float, s: float, t: float, w: float | None) -> float:
    variance = max(s * (1 - s), LEAST)  # NaN stays, since it comes first
    return (g if w is None else g * w) * (s - t) / variance * k.mean("self")


def vector(k: Arguments, g: Any, s: Any, t: Any, w: Any) -> Any:
    upstream = g * (1.0 if w is None else w) / (s.size if k["reduction"] == 1 else 1)
    slope = upstream / np.clip((1.0 - s) * s, LEAST, None)
    return (s - t) * slope, (np.abs(s) + np.abs(t)) * np.abs(slope)


def torch_says(k: Arguments, torch: Any) -> Any:
    backward = torch.ops.aten.binary_cross_entropy_backward
    return backward(k["grad_output"], k["self"], k["target"], k["weight"], k["reduction"])


BINARY_CROSS_ENTROPY_BACKWARD = elementwise(
    "aclnnBinaryCrossEntropyBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* target, "
        "const aclTensor* weightOptional, int64_t reduction, aclTensor* out"
    ),
    takes=FLOATS_EVERYWHERE,
    defaults={"reduction": 1},
    inputs=(
        In("grad_output", upstream("self")),
        In("self", probabilities()),
        In("target", probabilities(0, 1)),
        In("weight", uniform(0.1, 2), optional=True),
    ),
    output=Out("out", shape="self", dtype=promotion(*INPUTS)),
    scalar=scalar,
    vector=vector,
    space=("self",),
    expands=EXPANDS,
    broadcast=(Setup("no-weight", base=(3, 4), absent=("weight",)),),
    kernel=promotion(*INPUTS),
    npu=aten("binary_cross_entropy_backward", *_npu.BOTH, "target", "weight", "reduction"),
    torch=torch_says,
    attributes={"reduction": (0, 1, 2)},
    mixed=mixed_floats(*INPUTS, output="out"),
    # Shapes are not looked at where self is empty.
    empty=(Setup("unlike-others", shapes={"self": (0, 3), "target": (2, 3), "weight": (4,)}),),
    edges=(
        crossed(
            {"grad_output": G_EDGES, "self": S_EDGES, "target": (0.0, 1.0, 0.25, INF, NAN)},
            absent=("weight",),
        ),
        crossed({"self": S_EDGES, "target": (0.0, 1.0), "weight": G_EDGES}),
    ),
    empty_spares=("shape-",),
    invalid=(
        *defects.nulls("grad_output", "self", "target", "out"),
        *defects.ranks("out"),
        *defects.rank_of_what_follows("self", "out"),
        *defects.dtypes(*LISTED),
        *defects.no_bfloat16(*LISTED),
        *(
            Invalid(f"format-{name}", {name: OTHER}, ("self",), FormatError)
            for name in ("self", "target", "weight")
        ),
        *defects.shapes("out", (4, 3), (1, 3, 4)),
        Invalid("self-smaller", {"self": {"shape": (1, 4)}}, ("out",), ShapeError),
        *defects.shapes("target", (5, 3), (2, 3, 4)),
        *defects.shapes("weight", (5, 3), (2, 3, 4)),
        *defects.shapes("grad_output", (5, 3), (2, 3, 4)),
        *defects.values("reduction", 3, 7, -1, 2**32 + 1, block="reduction"),
        Invalid(
            "reduction-of-nothing", {"reduction": 7}, ("reduction",), AttributeValueError,
            base=Setup(base=(0, 3)),
        ),
    ),
)  # fmt: skip
