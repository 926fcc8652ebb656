"""aclnnAdaptiveAvgPool2d and aclnnAdaptiveAvgPool2dBackward [src:adaptive-avg-pool2d]."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import FLOAT16, INT32
from npucall.errors import FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements._pooling import Pooling
from npucall_conformance.statements.avg_pool2d import COMMON as OF_WINDOWS
from npucall_conformance.statements.max_pool2d import several
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement

NAN, INF = reals.NAN, reals.INFINITY
BUT_950 = ("Ascend910B", "Ascend910_93", "Ascend910", "Ascend310P")
SIZES = ((2, 3), (1, 1), (5, 9))
COMMON: dict[str, Any] = {
    **{name: value for name, value in OF_WINDOWS.items()
       if name not in ("attributes", "defaults", "defaulted", "broadcast", "formats_by_rank")},
    "kernel": dtype_of("self"),
}  # fmt: skip


PLANES = Pooling(2, adaptive=True)


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["self"].numel():
        return None
    return torch.nn.functional.adaptive_avg_pool2d(k["self"], k["output_size"])


def grad_torch(k: Arguments, torch: Any) -> Any:
    if not k["self"].numel():
        return None
    planes = k["self"].clone().requires_grad_()
    pooled = torch.nn.functional.adaptive_avg_pool2d(planes, k["grad_output"].shape[-2:])
    return torch.autograd.grad(pooled, planes, k["grad_output"])[0]


def grad_shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    """Fewer windows than rows, more than columns."""
    return {"grad_output": (*base[:-2], 3, base[-1] + 2), "self": base}


ADAPTIVE_AVG_POOL2D = Statement(
    "aclnnAdaptiveAvgPool2d",
    prototype="const aclTensor* self, const aclIntArray* outputSize, aclTensor* out",
    inputs=(In("self", normal(2.0)),),
    outputs=(Out("out", PLANES.windows, "self"),),
    loops=PLANES.averages,
    arrays=PLANES.averages_of_arrays,
    npu=aten("adaptive_avg_pool2d", "self", "output_size"),
    torch=torch_says,
    formats_by_rank=True,
    attributes={"output_size": SIZES},
    **COMMON,
    edges=(Setup("numbers", (1, 4, 5), values={"self": [[
        [1.0, 1, NAN, 2, 2], [1, 1, 3, NAN, 0], [-INF, -INF, INF, INF, 0],
        [-INF, -INF, 0.0, -0.0, 5]]]}),),
    empty=(
        Setup("no-windows", (2, 2, 4, 5), attributes={"output_size": (0, 3)}, products=ONLY_950),
        Setup("no-rows", (2, 2, 0, 5), products=BUT_950, filled=0.0),
    ),
    invalid=(
        *defects.nulls("self", "output_size", "out"),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *defects.shapes("out", (4, 2, 3), (2, 3, 2, 3)),
        *defects.shapes("self", (2, 2, 0, 5), products=ONLY_950),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT16),
        *defects.formats("out", found=Format.NHWC),
        Invalid("channels-last", {n: {"format": Format.NHWC} for n in ("self", "out")},
                ("self",), FormatError),
        *several("output_size", (), (2,), (2, 3, 1), (-1, 3)),
        *several("output_size", (0, 3), products=BUT_950),
        *defects.shapes("out", (2, 2, 3, 2)),
    ),
    empty_spares=("shape-self-2x2x0x5",),
)  # fmt: skip

PRIVATE = {"format": Format.FRACTAL_NZ}
ADAPTIVE_AVG_POOL2D_BACKWARD = Statement(
    "aclnnAdaptiveAvgPool2dBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, aclTensor* out",
    inputs=(In("grad_output", normal()), In("self", normal(), read=False)),
    outputs=(Out("out", "self", "self"),),
    loops=PLANES.averaged,
    arrays=PLANES.averaged_of_arrays,
    shapes=grad_shapes,
    npu=aten("_adaptive_avg_pool2d_backward", "grad_output", "self"),
    torch=grad_torch,
    **COMMON,
    edges=(Setup("numbers", (1, 4, 6), {"grad_output": (1, 2, 2)},
                 values={"grad_output": [[[INF, 1.0], [NAN, -2.0]]]}),),
    empty=(Setup("no-windows", (2, 2, 4, 5), {"grad_output": (2, 2, 0, 3)}, filled=0.0),),
    invalid=(
        *defects.nulls("grad_output", "self", "out"),
        *defects.shapes("grad_output", (2, 3, 7)),
        Invalid("flat", {n: {"shape": (4, 5)} for n in ("grad_output", "self", "out")},
                ("self",), ShapeError),
        *defects.shapes("out", (2, 4, 5), (2, 3, 4, 5)),
        *defects.shapes("grad_output", (2, 3, 3, 7)),
        *defects.dtypes("grad_output", found=INT32),
        *defects.no_bfloat16("grad_output"),
        *defects.dtypes("grad_output", found=FLOAT16),
        *defects.dtypes("out", found=FLOAT16),
        *defects.formats("grad_output", "out", found=Format.NHWC),
        Invalid("private", dict.fromkeys(("grad_output", "self", "out"), PRIVATE), ("self",),
                FormatError),
        *defects.shapes("out", (2, 2, 5, 4)),
    ),
)  # fmt: skip
