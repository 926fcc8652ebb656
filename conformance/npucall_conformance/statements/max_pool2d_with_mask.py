"""aclnnMaxPool2dWithMask and aclnnMaxPool2dWithMaskBackward [src:max-pool2d]."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16, INT8, INT32
from npucall.errors import (
    PARAM_NULLPTR,
    AclnnStatus,
    ArgumentError,
    AttributeValueError,
    FormatError,
    ShapeError,
)
from npucall.tensors import Format, Shape
from npucall_conformance.statements import max_pool2d as of_indices
from npucall_conformance.statements.max_pool2d import ATTRIBUTES, ATTRIBUTES_WRONG, COMMON, several
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
TAKES = {soc: FLOATS_WITH_BFLOAT16[soc] for soc in of_indices.ALL_BUT_950}
C_NAMES = (
    "const aclIntArray* kernelSize, const aclIntArray* stride, const aclIntArray* padding, "
    "const aclIntArray* dilation, bool ceilMode"
)
WRONG = tuple(row for row in ATTRIBUTES_WRONG
              if not row.row.startswith("kernel_size-none") and row.row != "kernel_size-2-2-2"
              and "Ascend950" not in row.products)  # fmt: skip
LENGTHS = ((), (2, 2, 2))
GAPS = Invalid("gaps-indices", {"indices": {"strides": (1536, 768, 128, 2)}}, ("indices",),
               ShapeError, alone=True)  # fmt: skip
ONE_CELL = Invalid("one-cell", {"kernel_size": (1, 1), "padding": (0,)}, ("kernel_size",),
                   AttributeValueError, AclnnStatus.ACLNN_ERR_INNER_NULLPTR)  # fmt: skip


def container(pooled: Shape, kernel: Any) -> Shape:
    cells = kernel[0] * kernel[-1]
    return (*pooled[:-2], cells, (math.ceil(math.prod(pooled[-2:]) / 16) + 1) * 32)


def of_call(k: Arguments) -> Shape:
    return container(of_indices.windows(k), k["kernel_size"])


def packed(places: Any, shape: Shape) -> Any:
    """Numbers as bytes, the lower first, and zeros behind them."""
    found = np.zeros(math.prod(shape), np.int8)
    numbers = np.asarray(places).reshape(-1).astype("<i4").view(np.int8)
    found[: len(numbers)] = numbers
    return found.reshape(shape)


def loops(k: Arguments) -> dict[str, Any]:
    found = of_indices.loops(k)
    return {**found, "indices": packed(found["indices"], of_call(k)).astype(np.float64)}


def arrays(k: Arguments) -> dict[str, Terms]:
    found = of_indices.arrays(k)
    places = packed(found["indices"].value, of_call(k))
    return {**found, "indices": Terms(places.astype(np.float64))}


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["self"].numel():
        return None
    out, places = torch.ops.aten.max_pool2d_with_indices(
        k["self"], *(k[name] for name in ATTRIBUTES)
    )
    shape = container(tuple(out.shape), k["kernel_size"])
    return {"out": out, "indices": torch.from_numpy(packed(places.numpy(), shape)).double()}


MAX_POOL2D_WITH_MASK = Statement(
    "aclnnMaxPool2dWithMask",
    prototype=f"const aclTensor* self, {C_NAMES}, aclTensor* out, aclTensor* indices",
    takes=TAKES,
    inputs=(In("self", normal(2.0)),),
    outputs=(
        Out("out", of_indices.windows, "self"),
        Out("indices", of_call, lambda _: INT8, own=True, dense=True),
    ),
    loops=loops,
    arrays=arrays,
    cost=0.0,
    npu="torch_npu keeps the container to itself",
    torch=torch_says,
    **COMMON,
    edges=(Setup("numbers", (1, 4, 5), values={"self": [[
        [1.0, 1, NAN, 2, 2], [1, 1, 3, NAN, 0], [-INF, -INF, INF, INF, 0],
        [-INF, -INF, 0.0, -0.0, 5]]]}),),
    invalid=(
        *defects.nulls("kernel_size", "self", "out"),
        *several("kernel_size", *LENGTHS),
        *defects.nulls("stride", "padding", "dilation", "indices"),
        *defects.dtypes("self"),
        *defects.dtypes("out", found=FLOAT16),
        *defects.dtypes("indices", found=INT32),
        *defects.formats("out", found=Format.NHWC),
        Invalid("channels-last", {n: {"format": Format.NHWC} for n in ("self", "out")},
                ("self",), FormatError),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *WRONG,
        ONE_CELL,
        *defects.shapes("self", (2, 0, 4, 5), (2, 2, 0, 5)),
        of_indices.NO_WINDOW,
        *defects.shapes("out", (2, 2, 4, 5), (2, 2, 2)),
        *defects.shapes("indices", (2, 2, 6, 32), (768,)),
        GAPS,
    ),
    empty_spares=("gaps-",),
)  # fmt: skip


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    found = of_indices.grad_shapes(base, attributes)
    kernel = {**COMMON["defaults"], **attributes}["kernel_size"]
    return {**found, "indices": container(found["grad_output"], kernel)}


def bytes_of_places(draw: Draw) -> Any:
    """Of each window any place of its plane; behind them any bytes."""
    count = math.prod(draw.shapes["grad_output"])
    places = draw.random.integers(0, max(math.prod(draw.shapes["self"][-2:]), 1), count)
    found = packed(places, draw.shape).reshape(-1)
    found[4 * count :] = draw.random.integers(-128, 128, max(len(found) - 4 * count, 0))
    return found.reshape(draw.shape)


def with_places(k: Arguments) -> Arguments:
    """The same call with the numbers of the container."""
    shape = of_indices.windows(k)
    numbers = k["indices"].astype(np.int8).reshape(-1)[: 4 * math.prod(shape)]
    places = numbers.view("<i4").reshape(shape).astype(np.float64)
    return replace(k, values={**k.values, "indices": places})


def grad_torch(k: Arguments, torch: Any) -> Any:
    if not k["self"].numel():
        return None
    count = k["grad_output"].numel()
    numbers = k["indices"].to(torch.int8).flatten()[: 4 * count].view(torch.int32)
    return torch.ops.aten.max_pool2d_with_indices_backward(
        k["grad_output"], k["self"], *(k[name] for name in ATTRIBUTES),
        numbers.reshape(k["grad_output"].shape).long(),
    )  # fmt: skip


SMALL = {
    "layout_shape": (1, 2, 4, 5),
    "sized": lambda count: (max(count // 256, 1), 16, 16),
}
"""Shapes whose containers quick runs have."""
BEYOND = packed(np.full((1, 2, 2, 1), 20), (1, 2, 6, 64)).astype(np.float64)
BELOW = packed(np.full((1, 2, 2, 1), -1), (1, 2, 6, 64)).astype(np.float64)

MAX_POOL2D_WITH_MASK_BACKWARD = Statement(
    "aclnnMaxPool2dWithMaskBackward",
    prototype=(
        "const aclTensor* gradOutput, const aclTensor* self, const aclTensor* indices, "
        f"{C_NAMES}, aclTensor* gradInput"
    ),
    takes=TAKES,
    inputs=(
        In("grad_output", normal()),
        In("self", normal(), read=False),
        In("indices", bytes_of_places, dtypes=(INT8,), dense=True),
    ),
    outputs=(Out("grad_input", "self", "self"),),
    loops=lambda k: of_indices.grad_loops(with_places(k)),
    arrays=lambda k: of_indices.grad_arrays(with_places(k)),
    shapes=grad_shapes,
    npu="torch_npu keeps the container to itself",
    torch=grad_torch,
    **COMMON | SMALL,
    edges=(Setup("numbers", (1, 4, 6), values={"grad_output": [[[INF, 1.0], [NAN, -2.0]]]},
                 attributes={"kernel_size": (2, 3), "stride": (), "padding": (0,),
                             "ceil_mode": False}),),
    invalid=(
        *defects.nulls("kernel_size", "self", "grad_output"),
        *several("kernel_size", *LENGTHS, status=PARAM_NULLPTR),
        *defects.nulls("indices", "stride", "padding", "dilation", "grad_input"),
        *defects.dtypes("self"),
        *defects.dtypes("grad_output", "grad_input", found=FLOAT16),
        *defects.dtypes("indices", found=INT32),
        *defects.formats("self", "grad_input", found=Format.NHWC),
        Invalid("channels-last", of_indices.SPREAD, ("grad_output",), FormatError),
        *defects.shapes("self", (4, 5), (1, 1, 1, 4, 5)),
        *WRONG,
        ONE_CELL,
        *defects.shapes("grad_input", (1, 2, 5, 4), (40,)),
        Invalid("no-channels", {n: {"shape": (1, 0, 4, 5)} for n in ("self", "grad_input")},
                ("self",), ShapeError),
        of_indices.NO_WINDOW,
        *defects.shapes("grad_output", (1, 2, 4, 5), (1, 2, 2)),
        *defects.shapes("indices", (1, 2, 6, 32), (768,)),
        GAPS,
        Invalid("index-beyond", {"indices": {"values": BEYOND}}, ("indices",), ArgumentError,
                alone=True),
        Invalid("index-below", {"indices": {"values": BELOW}}, ("indices",), ArgumentError,
                alone=True),
    ),
    empty_spares=("index-", "no-", "gaps-", "shape-grad_input"),
)  # fmt: skip
