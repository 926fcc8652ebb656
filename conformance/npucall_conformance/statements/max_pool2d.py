"""aclnnMaxPool2dWithIndices and aclnnMaxPool2dWithIndicesBackward [src:max-pool2d]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, FLOATS, INT32, INT64
from npucall.errors import ArgumentError, AttributeValueError, FormatError, ShapeError
from npucall.tensors import Format, Shape
from npucall_conformance.statements._pooling import Pooling
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
ATTRIBUTES = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
ALL_BUT_950 = ("Ascend910B", "Ascend910_93")
COMMON: dict[str, Any] = {
    "legacy": (),
    "defaults": {"stride": (), "padding": (0,), "dilation": (1,), "ceil_mode": False},
    "attributes": {
        "kernel_size": ((2, 3),),
        "stride": ((), (2, 1)),
        "padding": ((0,), (1, 1)),
        "dilation": ((1,),),
        "ceil_mode": (False, True),
    },
    "base_shapes": ((2, 3, 5, 7), (3, 6, 4), (1, 2, 4, 9)),
    "layout_shape": (2, 2, 4, 5),
    "rank_shapes": ((3, 4, 5), (1, 1, 3, 4)),
    "empty_shapes": ((0, 3, 4, 5),),
    "sized": lambda count: (max(count // 80, 1), 8, 10),
    "fitted": lambda base: (*base[:-2], *(max(extent, 4) for extent in base[-2:])),
    "large_shape": (3, 5, 81, 85),
    "large": (Setup("many-rows", (9_001, 3, 4)), Setup("long-rows", (2, 5, 10_021)),
              Setup("one-row", (1, 301, 341))),
    "chunked": (13_000, 8, 11),
    "defaulted": Setup(base=(1, 2, 5, 5), attributes={"padding": (0,)}),
    "kernel": dtype_of("self"),
}  # fmt: skip


PLANES = Pooling(2)
windows, loops, arrays = PLANES.windows, PLANES.maxima, PLANES.maxima_of_arrays
grad_loops, grad_arrays = PLANES.added, PLANES.added_of_arrays


def maxima_of(function: str) -> Any:
    """What torch answers, if there are planes."""

    def torch_says(k: Arguments, torch: Any) -> Any:
        if not k["self"].numel():
            return None
        given = (k[name] for name in ATTRIBUTES)
        found = getattr(torch.ops.aten, function)(k["self"], *given)
        return {"out": found[0], "indices": found[1].double()}

    return torch_says


def several(name: str, *found: tuple[int, ...], **more: Any) -> tuple[Invalid, ...]:
    """Values of an attribute that are refused."""
    return tuple(
        Invalid(f"{name}-{'-'.join(map(str, value)).replace('--', '-m') or 'none'}", {name: value},
                (name,), AttributeValueError, **more)
        for value in found
    )  # fmt: skip


ATTRIBUTES_WRONG = (
    *several("kernel_size", (), (2, 2, 2)),
    *several("stride", (1, 1, 1)),
    *several("padding", (), (0, 0, 0)),
    *several("dilation", (), (1, 1, 1)),
    *several("kernel_size", (0, 2), (2, -1)),
    *several("stride", (0,), (1, -1)),
    *several("padding", (2,), (-1, 0)),
    *several("dilation", (2,), products=ALL_BUT_950),
    *several("dilation", (1, -1), products=ONLY_950),
    *several("dilation", (0,)),
)
NO_WINDOW = Invalid("no-window", {"kernel_size": (9, 2)}, ("self", "kernel_size"), ShapeError)

MAX_POOL2D_WITH_INDICES = Statement(
    "aclnnMaxPool2dWithIndices",
    prototype=(
        "const aclTensor* self, const aclIntArray* kernelSize, const aclIntArray* stride, "
        "const aclIntArray* padding, const aclIntArray* dilation, bool ceilMode, aclTensor* out, "
        "aclTensor* indices"
    ),
    takes=FLOATS_WITH_BFLOAT16,
    inputs=(In("self", normal(2.0)),),
    outputs=(
        Out("out", windows, "self"),
        Out("indices", windows, lambda _: INT32, own=True),
    ),
    loops=loops,
    arrays=arrays,
    cost=0.0,
    npu=aten("max_pool2d_with_indices", "self", *ATTRIBUTES),
    torch=maxima_of("max_pool2d_with_indices"),
    **COMMON,
    mixed=(Setup(dtypes={"indices": INT64}, only=FLOATS),),
    edges=(
        Setup("numbers", (1, 4, 5), values={"self": [[
            [1.0, 1, NAN, 2, 2], [1, 1, 3, NAN, 0], [-INF, -INF, INF, INF, 0],
            [-INF, -INF, 0.0, -0.0, 5]]]}),
        Setup("dilated", (1, 5, 6), attributes={"dilation": (2, 1)}, products=ONLY_950),
    ),
    invalid=(
        *defects.nulls("self", "kernel_size", "stride", "padding", "dilation", "out", "indices"),
        *defects.dtypes("self"),
        *defects.dtypes("out", found=FLOAT16),
        *defects.dtypes("indices", found=FLOAT),
        *defects.formats("out", found=Format.NHWC),
        Invalid("channels-last", {n: {"format": Format.NHWC} for n in ("self", "out")},
                ("self",), FormatError),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *ATTRIBUTES_WRONG,
        *defects.shapes("self", (2, 0, 4, 5), (2, 2, 0, 5)),
        NO_WINDOW,
        *defects.shapes("out", (2, 2, 4, 5), (2, 2, 2)),
        *defects.shapes("indices", (2, 2, 4, 5), (2, 2, 2)),
    ),
)  # fmt: skip


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    return PLANES.grad_shapes(base, {**COMMON["defaults"], **attributes})


def grad_torch(k: Arguments, torch: Any) -> Any:
    if not k["self"].numel():
        return None
    return torch.ops.aten.max_pool2d_with_indices_backward(
        k["grad_output"], k["self"], *(k[name] for name in ATTRIBUTES), k["indices"].long()
    )


SPREAD = {"grad_output": {"format": Format.NHWC}, "self": {"format": Format.NHWC},
          "grad_input": {"format": Format.NHWC}}  # fmt: skip

MAX_POOL2D_WITH_INDICES_BACKWARD = Statement(
    "aclnnMaxPool2dWithIndicesBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* indices, "
        "const aclIntArray* kernelSize, const aclIntArray* stride, const aclIntArray* padding, "
        "const aclIntArray* dilation, bool ceilMode, aclTensor* gradInput"
    ),
    takes={**on(ALL_BUT_950, FLOAT), "Ascend950": FLOATS},
    inputs=(
        In("grad_output", normal()),
        In("self", normal(), read=False),
        In("indices", PLANES.places, dtypes=(INT32,)),
    ),
    outputs=(Out("grad_input", "self", "self"),),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    dtypes=(FLOAT,),
    npu=aten("max_pool2d_with_indices_backward", "grad_output", "self", *ATTRIBUTES, "indices"),
    torch=grad_torch,
    **COMMON,
    mixed=(
        *(Setup(dtypes={"grad_output": each, "self": each}, products=ONLY_950)
          for each in FLOATS[1:]),
        Setup(dtypes={"indices": INT64}, products=ONLY_950),
    ),
    edges=(Setup("numbers", (1, 4, 6), values={
        "grad_output": [[[INF, 1.0], [NAN, -2.0]]], "indices": np.array([[[0, 0], [3, 23]]]),
    }, attributes={"kernel_size": (2, 3), "stride": (), "padding": (0,), "ceil_mode": False}),),
    invalid=(
        *defects.nulls("grad_output", "self", "indices", "kernel_size", "stride", "padding",
                       "dilation", "grad_input"),
        *defects.dtypes("self"),
        *defects.dtypes("self", found=FLOAT16, products=ALL_BUT_950),
        *defects.dtypes("grad_output", "grad_input", found=FLOAT16),
        *defects.dtypes("indices", found=INT64, products=ALL_BUT_950),
        *defects.dtypes("indices", found=FLOAT),
        *defects.formats("self", "grad_input", found=Format.NHWC),
        Invalid("channels-last", SPREAD, ("grad_output",), FormatError),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *ATTRIBUTES_WRONG,
        *defects.shapes("grad_input", (2, 2, 5, 4), (80,)),
        Invalid("no-channels", {n: {"shape": (2, 0, 4, 5)} for n in ("self", "grad_input")},
                ("self",), ShapeError),
        NO_WINDOW,
        *defects.shapes("grad_output", (2, 2, 4, 5), (2, 2, 2)),
        *defects.shapes("indices", (2, 2, 4, 5), (2, 2, 2)),
        Invalid("index-beyond", {"indices": {"values": np.full((2, 2, 2, 1), 20.0)}},
                ("indices",), ArgumentError, alone=True),
        Invalid("index-below", {"indices": {"values": np.full((2, 2, 2, 1), -1.0)}},
                ("indices",), ArgumentError, alone=True),
    ),
    empty_spares=("index-", "no-", "shape-grad_input"),
)  # fmt: skip
