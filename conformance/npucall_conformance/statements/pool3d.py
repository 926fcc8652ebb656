"""Poolings of planes with depth, and their gradients [src:pool3d]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, FLOATS, INT32, INT64
from npucall.errors import ArgumentError, FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from npucall_conformance.statements._pooling import Pooling
from npucall_conformance.statements.max_pool2d import ALL_BUT_950, several
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import on

NAN, INF = reals.NAN, reals.INFINITY
PLANES, ADAPTIVE = Pooling(3), Pooling(3, adaptive=True)
NEW = ("Ascend910B", "Ascend910_93", "Ascend950")
TAKES = on(NEW, *FLOATS)
WITH_310P = {**TAKES, **on(("Ascend310P",), FLOAT, FLOAT16)}
NUMBERS = [[[[1.0, 1, NAN, 2, 2], [1, 1, 3, NAN, 0]], [[-INF, -INF, INF, INF, 0],
             [-INF, -INF, 0.0, -0.0, 5]], [[NAN, 1, 2, 2, 1], [1, 1, 1, 1, 1]]]]  # fmt: skip
SHAPES: dict[str, Any] = {
    "legacy": (),
    "base_shapes": ((1, 2, 3, 5, 4), (2, 4, 3, 5)),
    "layout_shape": (2, 2, 3, 3, 4),
    "rank_shapes": ((2, 3, 3, 4), (1, 1, 3, 3, 4)),
    "sized": lambda count: (max(count // 320, 1), 4, 8, 10),
    "fitted": lambda base: (*base[:-3], *(max(extent, 3) for extent in base[-3:])),
    "large_shape": (2, 2, 21, 29, 43),
    "large": (Setup("many-planes", (2_801, 3, 3, 4)), Setup("long-rows", (1, 2, 3, 16_411)),
              Setup("one-row", (1, 9, 101, 121))),
    "chunked": (3_300, 4, 8, 11),
}  # fmt: skip
WINDOWS: dict[str, Any] = {
    "kernel_size": ((2, 3, 2),),
    "stride": ((), (2, 1, 1)),
    "padding": ((0, 0, 0), (1, 1, 1)),
    "ceil_mode": (False, True),
}
GRADIENTS = {"grad_output": [[[[INF, 1.0], [NAN, -2.0]], [[0.5, -INF], [-INF, 3.0]]]]}


def of_attributes(statement: Any) -> Any:
    """The shapes of a gradient, with the attributes that are left out."""

    def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
        return PLANES.grad_shapes(base, {**statement["defaults"], **attributes})

    return shapes


def says(function: str, *names: str) -> Any:
    """What torch answers, if there are planes."""

    def torch_says(k: Arguments, torch: Any) -> Any:
        if not k["self"].numel():
            return None
        given = [k[name].long() if name == "indices" else k[name] for name in names]
        if "divisor_override" in names:
            given[names.index("divisor_override")] = k["divisor_override"] or None
        return getattr(torch.ops.aten, function)(*given)

    return torch_says


def lasts(*names: str) -> Invalid:
    """Channels are last, in all of them."""
    return Invalid("channels-last", {n: {"format": Format.NDHWC} for n in names}, names[:1],
                   FormatError)  # fmt: skip


def private(*names: str) -> Invalid:
    """All of them have a format of the device."""
    return Invalid("private", {n: {"format": Format.FRACTAL_NZ} for n in names}, names[:1],
                   FormatError)  # fmt: skip


LENGTHS = (*several("kernel_size", (), (2, 2)), *several("padding", (), (0, 0)),
           *several("stride", (1, 1)))  # fmt: skip
NO_WINDOW = Invalid("no-window", {"kernel_size": (9, 3, 2)}, ("self", "kernel_size"), ShapeError)
OF_AVERAGES = avg_pool2d.NAMES
AVERAGES: dict[str, Any] = {
    **SHAPES,
    "defaults": {name: value for name, value in avg_pool2d.COMMON["defaults"].items()
                 if name != "cube_math_type"},
    "attributes": {**WINDOWS, "count_include_pad": (True, False), "divisor_override": (0,)},
    "broadcast": tuple(
        Setup(f"divided-by-{number}", (2, 2, 3, 3, 4), attributes={"divisor_override": number})
        for number in (7, -3)
    ),
}  # fmt: skip
C_AVERAGES = (
    "const aclIntArray* kernelSize, const aclIntArray* stride, const aclIntArray* padding, "
    "bool ceilMode, bool countIncludePad, int64_t divisorOverride"
)

AVG_POOL3D = Statement(
    "aclnnAvgPool3d",
    prototype=f"const aclTensor* self, {C_AVERAGES}, aclTensor* out",
    takes=WITH_310P,
    inputs=(In("self", normal(2.0)),),
    outputs=(Out("out", PLANES.windows, "self"),),
    loops=PLANES.averages,
    arrays=PLANES.averages_of_arrays,
    kernel=dtype_of("self"),
    npu=avg_pool2d.way("avg_pool3d", "self"),
    torch=says("avg_pool3d", "self", *OF_AVERAGES),
    **AVERAGES,
    empty_shapes=((0, 3, 3, 4),),
    edges=(Setup("numbers", (1, 3, 2, 5), values={"self": NUMBERS},
                 attributes={"kernel_size": (2,), "padding": (0,)}),),
    invalid=(
        *defects.nulls("self", "kernel_size", "stride", "padding", "out"),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT16),
        *defects.formats("out", found=Format.NDHWC),
        private("self", "out"),
        *defects.shapes("self", (3, 3, 4), (1, 1, 1, 3, 3, 4)),
        *defects.shapes("out", (2, 2, 8)),
        *LENGTHS,
        *several("kernel_size", (0, 2, 2), (2, 2, -1)),
        *several("kernel_size", (2, 4, 2)),
        *several("stride", (0,), (1, 1, -1)),
        *several("padding", (2,), (-1, 0, 0)),
        *defects.shapes("out", (2, 2, 3, 3, 4)),
    ),
)  # fmt: skip

AVG_POOL3D_BACKWARD = Statement(
    "aclnnAvgPool3dBackward",
    prototype=(
        f"const aclTensor* gradOutput, const aclTensor* self, {C_AVERAGES}, aclTensor* output"
    ),
    takes=TAKES,
    inputs=(In("grad_output", normal()), In("self", normal(), read=False)),
    outputs=(Out("output", "self", "grad_output"),),
    loops=PLANES.averaged,
    arrays=PLANES.averaged_of_arrays,
    shapes=of_attributes(AVERAGES),
    kernel=dtype_of("grad_output"),
    npu=avg_pool2d.way("avg_pool3d_backward", "grad_output", "self"),
    torch=says("avg_pool3d_backward", "grad_output", "self", *OF_AVERAGES),
    **AVERAGES | {"defaults": {**AVERAGES["defaults"], "padding": (0, 0, 0)}},
    empty_shapes=((0, 3, 3, 4),),
    empty=(Setup("no-channels", (2, 0, 3, 3, 4)),),
    mixed=(Setup(dtypes={"self": FLOAT16}), Setup(dtypes={"output": FLOAT16})),
    edges=(Setup("numbers", (1, 4, 4, 4), values=GRADIENTS, attributes={
        "kernel_size": (2,), "stride": (2,), "padding": (0,), "ceil_mode": False}),),
    invalid=(
        *defects.nulls("grad_output", "self", "kernel_size", "stride", "padding", "output"),
        *defects.dtypes("grad_output", "self", "output", found=INT32),
        *defects.shapes("grad_output", (3, 3, 4), (1, 1, 1, 3, 3, 4)),
        *defects.shapes("self", (2, 3, 3, 4)),
        *defects.shapes("output", (2, 2, 36), (2, 2, 3, 4, 3)),
        *LENGTHS,
        *defects.formats("output", found=Format.NDHWC),
        private("grad_output", "output"),
        *several("kernel_size", (0, 2, 2), (2, 2, -1)),
        *several("stride", (0,), (1, 1, -1)),
        *several("padding", (0,), (0, 0, 2), (-1, 0, 0)),
        NO_WINDOW,
        *defects.shapes("grad_output", (2, 2, 3, 3, 4)),
    ),
)  # fmt: skip

SHARED: dict[str, Any] = {**SHAPES, "kernel": dtype_of("self")}
SIZES = ((2, 1, 3), (1, 1, 1), (5, 4, 3))

ADAPTIVE_AVG_POOL3D = Statement(
    "aclnnAdaptiveAvgPool3d",
    prototype="const aclTensor* self, const aclIntArray* outputSize, aclTensor* out",
    takes=WITH_310P,
    inputs=(In("self", normal(2.0)),),
    outputs=(Out("out", ADAPTIVE.windows, "self"),),
    loops=ADAPTIVE.averages,
    arrays=ADAPTIVE.averages_of_arrays,
    npu=aten("adaptive_avg_pool3d", "self", "output_size"),
    torch=says("adaptive_avg_pool3d", "self", "output_size"),
    attributes={"output_size": SIZES},
    **SHARED,
    empty_shapes=(),
    empty=(Setup("no-planes", (0, 3, 3, 3, 4), products=ONLY_950),),
    edges=(Setup("numbers", (1, 3, 2, 5), values={"self": NUMBERS}),),
    invalid=(
        *defects.nulls("self", "output_size", "out"),
        *defects.shapes("self", (3, 3, 4), (1, 1, 1, 3, 3, 4)),
        *defects.shapes("out", (4, 2, 1, 3)),
        *defects.shapes("self", (0, 2, 3, 3, 4), products=adaptive_avg_pool2d.BUT_950),
        *defects.shapes("self", (2, 2, 3, 0, 4)),
        *defects.shapes("out", (2, 3, 2, 1, 3)),
        *defects.dtypes("self"),
        *defects.no_bfloat16("self"),
        *defects.dtypes("out", found=FLOAT16),
        *defects.formats("out", found=Format.NDHWC),
        Invalid("channels-last", {n: {"format": Format.NDHWC} for n in ("self", "out")},
                ("self",), FormatError, products=ONLY_950),
        private("self", "out"),
        *several("output_size", (), (2,), (2, 3, 1, 1), (-1, 3, 2), (0, 3, 2)),
        *defects.shapes("out", (2, 2, 2, 3, 1)),
    ),
)  # fmt: skip


def adapted(base: Shape, _: Attributes) -> dict[str, Shape]:
    """One window; on products that take more, other setups have more."""
    return {"grad_output": (*base[:-3], 1, 1, 1), "self": base}


MANY = tuple(
    Setup(f"windows-{'x'.join(map(str, size))}", (2, 2, 3, 3, 4), {"grad_output": (2, 2, *size)},
          products=(*NEW, "Ascend310P"))
    for size in ((2, 1, 3), (3, 2, 5), (5, 3, 4))
)  # fmt: skip
ADAPTIVE_AVG_POOL3D_BACKWARD = Statement(
    "aclnnAdaptiveAvgPool3dBackward",
    prototype="const aclTensor* gradOutput, const aclTensor* self, aclTensor* out",
    takes={**WITH_310P, **on(("Ascend910",), FLOAT, FLOAT16)},
    inputs=(In("grad_output", normal()), In("self", normal(), read=False)),
    outputs=(Out("out", "self", "self"),),
    loops=ADAPTIVE.averaged,
    arrays=ADAPTIVE.averaged_of_arrays,
    shapes=adapted,
    npu=aten("_adaptive_avg_pool3d_backward", "grad_output", "self"),
    torch=says("_adaptive_avg_pool3d_backward", "grad_output", "self"),
    **SHARED,
    empty_shapes=(),
    empty=(Setup("no-planes", (0, 3, 3, 3, 4), products=ONLY_950),),
    broadcast=MANY,
    edges=(Setup("numbers", (1, 2, 3, 4), {"grad_output": (1, 2, 2, 2)}, values=GRADIENTS,
                 products=(*NEW, "Ascend310P")),),
    invalid=(
        *defects.nulls("grad_output", "self", "out"),
        Invalid("flat", {n: {"shape": (3, 3, 4)} for n in ("grad_output", "self", "out")},
                ("self",), ShapeError),
        *defects.shapes("grad_output", (2, 1, 1, 1)),
        *defects.shapes("out", (2, 3, 3, 4)),
        Invalid("no-planes-of-old", {"self": {"shape": (0, 2, 3, 3, 4)},
                "out": {"shape": (0, 2, 3, 3, 4)}, "grad_output": {"shape": (0, 2, 1, 1, 1)}},
                ("self",), ShapeError, products=adaptive_avg_pool2d.BUT_950),
        *defects.shapes("self", (2, 2, 3, 0, 4)),
        *defects.shapes("out", (2, 2, 3, 4, 3)),
        *defects.shapes("grad_output", (2, 3, 1, 1, 1), (2, 2, 1, 0, 1)),
        *defects.dtypes("grad_output", found=INT32),
        *defects.no_bfloat16("grad_output"),
        *defects.dtypes("grad_output", found=FLOAT16),
        *defects.dtypes("out", found=FLOAT16),
        *defects.formats("grad_output", "out", found=Format.NDHWC),
        Invalid("private", {n: {"format": Format.FRACTAL_NZ} for n in
                ("grad_output", "self", "out")}, ("grad_output",), FormatError),
        *defects.shapes("grad_output", (2, 2, 2, 1, 1), products=("Ascend910",)),
    ),
)  # fmt: skip

OF_MAXIMA = max_pool2d.ATTRIBUTES
MAXIMA: dict[str, Any] = {
    **SHARED,
    "defaults": {"stride": (), "padding": (0,), "dilation": (1,), "ceil_mode": False},
    "attributes": {**WINDOWS, "dilation": ((1,),)},
    "empty_shapes": ((0, 3, 3, 4),),
    "takes": TAKES,
}
C_MAXIMA = (
    "const aclIntArray* kernelSize, const aclIntArray* stride, const aclIntArray* padding, "
    "const aclIntArray* dilation, bool ceilMode"
)
WRONG = (
    *several("kernel_size", (), (2, 2)),
    *several("stride", (1, 1)),
    *several("padding", (), (0, 0)),
    *several("dilation", (), (1, 1)),
    *several("kernel_size", (0, 2, 2), (2, 2, -1)),
    *several("stride", (0,), (1, 1, -1)),
    *several("padding", (2,), (-1, 0, 0)),
)

MAX_POOL3D_WITH_ARGMAX = Statement(
    "aclnnMaxPool3dWithArgmax",
    prototype=f"const aclTensor* self, {C_MAXIMA}, aclTensor* out, aclTensor* indices",
    inputs=(In("self", normal(2.0)),),
    outputs=(
        Out("out", PLANES.windows, "self"),
        Out("indices", PLANES.windows, lambda _: INT32, own=True),
    ),
    loops=PLANES.maxima,
    arrays=PLANES.maxima_of_arrays,
    cost=0.0,
    npu=aten("max_pool3d_with_indices", "self", *OF_MAXIMA),
    torch=max_pool2d.maxima_of("max_pool3d_with_indices"),
    **MAXIMA,
    mixed=(Setup(dtypes={"indices": INT64}, only=FLOATS, products=ONLY_950),),
    edges=(
        Setup("numbers", (1, 3, 2, 5), values={"self": NUMBERS},
              attributes={"kernel_size": (2,), "padding": (0,), "stride": (1,)}),
        Setup("dilated", (1, 5, 5, 6), attributes={"dilation": (2, 1, 2)}, products=ONLY_950),
    ),
    invalid=(
        *defects.nulls("self", "kernel_size", "stride", "padding", "dilation", "out", "indices"),
        *defects.dtypes("self"),
        *defects.dtypes("indices", found=INT64, products=ALL_BUT_950),
        *defects.dtypes("indices", found=FLOAT),
        *defects.dtypes("out", found=FLOAT16),
        *defects.formats("out", "indices", found=Format.NDHWC),
        *defects.shapes("self", (3, 3, 4), (1, 1, 1, 3, 3, 4)),
        lasts("self", "out", "indices"),
        *WRONG,
        *several("dilation", (2,), products=ALL_BUT_950),
        *several("dilation", (1, 1, -1), products=ONLY_950),
        *several("dilation", (0,)),
        NO_WINDOW,
        *defects.shapes("out", (2, 2, 3, 3, 4), (2, 2, 2)),
        *defects.shapes("indices", (2, 2, 3, 3, 4), (2, 2, 2)),
    ),
)  # fmt: skip

POOLED = (2, 2, 1, 1, 2)
MAX_POOL3D_WITH_ARGMAX_BACKWARD = Statement(
    "aclnnMaxPool3dWithArgmaxBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* indices, "
        f"{C_MAXIMA}, aclTensor* gradInput"
    ),
    inputs=(
        In("grad_output", normal()),
        In("self", normal(), read=False),
        In("indices", PLANES.places, dtypes=(INT32,)),
    ),
    outputs=(Out("grad_input", "self", "self"),),
    loops=PLANES.added,
    arrays=PLANES.added_of_arrays,
    shapes=of_attributes(MAXIMA),
    npu=aten("max_pool3d_with_indices_backward", "grad_output", "self", *OF_MAXIMA, "indices"),
    torch=says("max_pool3d_with_indices_backward", "grad_output", "self", *OF_MAXIMA, "indices"),
    **MAXIMA,
    mixed=(Setup(dtypes={"indices": INT64}, products=ONLY_950),),
    edges=(
        Setup("numbers", (1, 4, 4, 4), values={**GRADIENTS, "indices": np.array(
            [[[[0, 0], [3, 23]], [[63, 5], [5, 7]]]])}, attributes={
            "kernel_size": (2,), "stride": (2,), "padding": (0,), "ceil_mode": False}),
        Setup("dilated", (1, 5, 5, 6), attributes={"dilation": (2, 1, 2)}),
    ),
    invalid=(
        *defects.nulls("grad_output", "self", "indices", "kernel_size", "stride", "padding",
                       "dilation", "grad_input"),
        *defects.dtypes("self"),
        *defects.dtypes("indices", found=INT64, products=ALL_BUT_950),
        *defects.dtypes("indices", found=FLOAT),
        *defects.dtypes("grad_output", "grad_input", found=FLOAT16),
        *defects.shapes("self", (3, 3, 4), (1, 1, 1, 3, 3, 4)),
        *defects.shapes("grad_output", (2, 1, 1, 2)),
        *defects.shapes("indices", (2, 1, 1, 2)),
        *defects.shapes("grad_input", (2, 3, 3, 4)),
        *defects.formats("grad_output", "indices", "grad_input", found=Format.NDHWC),
        lasts("self", "grad_output", "indices", "grad_input"),
        *WRONG,
        *several("dilation", (0,), (1, 1, -1)),
        *defects.shapes("indices", (2, 2, 2, 1, 1)),
        *defects.shapes("grad_input", (2, 2, 3, 4, 3)),
        NO_WINDOW,
        Invalid("shape-pooled", {n: {"shape": (2, 2, 2, 1, 1)} for n in ("grad_output", "indices")},
                ("grad_output",), ShapeError),
        Invalid("index-beyond", {"indices": {"values": np.full(POOLED, 36.0)}},
                ("indices",), ArgumentError, alone=True),
        Invalid("index-below", {"indices": {"values": np.full(POOLED, -1.0)}},
                ("indices",), ArgumentError, alone=True),
    ),
    empty_spares=("index-", "no-", "shape-pooled"),
)  # fmt: skip
