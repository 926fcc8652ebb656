"""aclnnAvgPool2d and aclnnAvgPool2dBackward [src:avg-pool2d]."""

from __future__ import annotations

from typing import Any

from npucall.dtypes import FLOAT16, INT32
from npucall.errors import AttributeValueError, FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements._pooling import UNCLIPPED, Pooling
from npucall_conformance.statements.max_pool2d import COMMON as OF_MAXIMA
from npucall_conformance.statements.max_pool2d import several
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import TorchArguments, Way
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
NAMES = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
C_NAMES = (
    "const aclIntArray* kernelSize, const aclIntArray* stride, const aclIntArray* padding, "
    "bool ceilMode, bool countIncludePad, int64_t divisorOverride, int8_t cubeMathType"
)
COMMON: dict[str, Any] = {
    **{name: value for name, value in OF_MAXIMA.items() if name != "kernel"},
    "takes": {**FLOATS_WITH_BFLOAT16, **on(UNCLIPPED, *(FLOATS_WITH_BFLOAT16["Ascend910B"][:2]))},
    "formats_by_rank": True,
    "defaults": {"stride": (), "padding": (0,), "ceil_mode": False, "count_include_pad": True,
                 "divisor_override": 0, "cube_math_type": 0},
    "attributes": {
        "kernel_size": ((2, 3),),
        "stride": ((), (2, 1)),
        "padding": ((1, 1), (0,)),
        "ceil_mode": (False, True),
        "count_include_pad": (True, False),
        "divisor_override": (0,),
    },
    "defaulted": Setup(base=(2, 2, 5, 6), attributes={"padding": (1, 1)}),
    "broadcast": tuple(
        Setup(f"divided-by-{number}", (2, 2, 4, 5), attributes={"divisor_override": number})
        for number in (7, -3)
    ),
}  # fmt: skip


PLANES = Pooling(2)


def given(k: Any) -> list[Any]:
    """As torch takes them: no divisor is None."""
    return [*(list(k[name]) for name in NAMES[:3]), *(k[name] for name in NAMES[3:5]),
            k[NAMES[5]] or None]  # fmt: skip


def torch_says(k: Arguments, torch: Any) -> Any:
    of_device = k.product in UNCLIPPED and k["ceil_mode"] and k["count_include_pad"]
    if of_device or not k["self"].numel():
        return None
    return torch.ops.aten.avg_pool2d(k["self"], *given(k))


def way(function: str, *tensors: str) -> Way:
    """An operator of torch that takes these tensors."""

    def call(arguments: TorchArguments) -> Any:
        own = (arguments[name] for name in tensors)
        return getattr(arguments.aten, function)(*own, *given(arguments))

    return call


VALUES = (
    *several("kernel_size", (0, 2), (2, -1)),
    *several("stride", (0,), (1, -1)),
)
NO_WINDOW = Invalid("no-window", {"kernel_size": (9, 2)}, ("self", "kernel_size"), ShapeError)

AVG_POOL2D = Statement(
    "aclnnAvgPool2d",
    prototype=f"const aclTensor* self, {C_NAMES}, aclTensor* out",
    inputs=(In("self", normal(2.0)),),
    outputs=(Out("out", PLANES.windows, "self"),),
    loops=PLANES.averages,
    arrays=PLANES.averages_of_arrays,
    kernel=dtype_of("self"),
    npu=way("avg_pool2d", "self"),
    torch=torch_says,
    **COMMON,
    edges=(Setup("numbers", (1, 4, 5), values={"self": [[
        [1.0, 1, NAN, 2, 2], [1, 1, 3, NAN, 0], [-INF, -INF, INF, INF, 0],
        [-INF, -INF, 0.0, -0.0, 5]]]}),),
    invalid=(
        *defects.nulls("self", "kernel_size", "stride", "padding", "out"),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT16),
        Invalid("channels-last", {n: {"format": Format.NHWC} for n in ("self", "out")},
                ("self",), FormatError),
        *defects.formats("out", found=Format.NHWC),
        *VALUES,
        *several("padding", (-1, 0)),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *defects.shapes("out", (2, 2, 8)),
        *defects.shapes("self", (2, 0, 4, 5), (2, 2, 0, 5)),
        *several("kernel_size", (), (2, 2, 2)),
        *several("padding", (), (0, 0, 0)),
        *several("stride", (1, 1, 1)),
        *several("padding", (2,)),
        NO_WINDOW,
        *defects.shapes("out", (2, 2, 4, 5)),
        *defects.values("cube_math_type", -1, 5),
    ),
)  # fmt: skip


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    return PLANES.grad_shapes(base, {**COMMON["defaults"], **attributes})


def grad_torch(k: Arguments, torch: Any) -> Any:
    of_device = k.product in UNCLIPPED and k["ceil_mode"] and k["count_include_pad"]
    if of_device or not k["self"].numel():
        return None
    return torch.ops.aten.avg_pool2d_backward(k["grad_output"], k["self"], *given(k))


AVG_POOL2D_BACKWARD = Statement(
    "aclnnAvgPool2dBackward",
    prototype=(
        f"const aclTensor* gradOutput, const aclTensor* self, {C_NAMES}, aclTensor* gradInput"
    ),
    inputs=(In("grad_output", normal()), In("self", normal(), read=False)),
    outputs=(Out("grad_input", "self", "grad_output"),),
    loops=PLANES.averaged,
    arrays=PLANES.averaged_of_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("grad_output"),
    npu=way("avg_pool2d_backward", "grad_output", "self"),
    torch=grad_torch,
    **COMMON,
    mixed=(Setup(dtypes={"self": FLOAT16}),),
    edges=(Setup("numbers", (1, 4, 6), values={"grad_output": [[[INF, 1.0], [NAN, -2.0]]]},
                 attributes={"kernel_size": (2, 3), "stride": (), "padding": (0,)}),),
    invalid=(
        *defects.nulls("grad_output", "self", "kernel_size", "padding", "grad_input"),
        *defects.dtypes("grad_output", "self", found=INT32),
        *defects.no_bfloat16("grad_output", "self"),
        *defects.dtypes("grad_input", found=FLOAT16),
        Invalid("channels-last", {"grad_output": {"format": Format.NHWC}}, ("grad_output",),
                FormatError),
        *defects.formats("self", "grad_input", found=Format.NHWC),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *defects.shapes("grad_output", (2, 2, 8)),
        *defects.shapes("grad_input", (2, 2, 20)),
        *several("kernel_size", (), (2, 2, 2), (0, 2), (2, -1)),
        *several("stride", (1, 1, 1), (0,), (1, -1)),
        *several("padding", (), (0, 0, 0), (2,), (-1, 0)),
        *defects.values("cube_math_type", -1, 4),
        *defects.shapes("grad_input", (2, 2, 5, 4)),
        NO_WINDOW,
        *defects.shapes("grad_output", (2, 2, 4, 5)),
        Invalid("divisor-256", {"divisor_override": 256}, ("divisor_override",),
                AttributeValueError, products=UNCLIPPED),
    ),
)  # fmt: skip
