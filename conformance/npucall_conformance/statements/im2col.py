"""aclnnIm2col and aclnnIm2colBackward [src:im2col]."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT16, FLOATS, INT32
from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements.max_pool2d import several
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup, mixed_floats
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
NAMES = ("kernel_size", "dilation", "padding", "stride")
C_NAMES = (
    "const aclIntArray* kernelSize, const aclIntArray* dilation, const aclIntArray* padding, "
    "const aclIntArray* stride"
)
COMMON: dict[str, Any] = {
    "legacy": (),
    "attributes": {
        "kernel_size": ((2, 3), (1, 2)),
        "dilation": ((1, 2), (2, 1)),
        "padding": ((1, 2), (0, 3)),
        "stride": ((2, 1), (1, 3)),
    },
    "base_shapes": ((2, 3, 4, 5), (2, 5, 4), (1, 1, 3, 3)),
    "layout_shape": (2, 2, 4, 5),
    "rank_shapes": ((2, 3, 3), (1, 1, 3, 3)),
    "empty_shapes": ((0, 2, 3, 4),),
    "sized": lambda count: (1, max(count // 25, 1), 5, 5),
    "fitted": lambda base: (*base[:-3], *(max(n, 3) for n in base[-3:])),
    "large_shape": (3, 5, 83, 97),
    "large": (
        Setup("many-rows", (9, 1001, 4, 4)),
        Setup("long-rows", (2, 3, 100_003)),
        Setup("one-row", (1, 200_003, 3)),
    ),
}  # fmt: skip


def counts(k: Arguments, plane: Shape) -> tuple[int, int]:
    found = []
    for n, size in enumerate(plane):
        kernel, dilation, padding, stride = (k[name][n] for name in NAMES)
        found.append((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1)
    return found[0], found[1]


def columns(k: Arguments, shape: Shape) -> Shape:
    return (*shape[:-3], shape[-3] * math.prod(k["kernel_size"]), math.prod(counts(k, shape[-2:])))


def pairs(k: Arguments, plane: Shape) -> Iterator[tuple[int, int, int, int]]:
    """A place of the kernel, a window, and the cell of the plane that it is there."""
    height, width = counts(k, plane)
    (_, kw), (dy, dx), (py, px), (sy, sx) = (k[name] for name in NAMES)
    kernel = product(*map(range, k["kernel_size"]))
    for (i, j), y, x in product(kernel, range(height), range(width)):
        row, column = y * sy - py + i * dy, x * sx - px + j * dx
        if 0 <= row < plane[0] and 0 <= column < plane[1]:
            yield i * kw + j, y * width + x, row, column


def loops(k: Arguments) -> Any:
    planes = k["self"].reshape(-1, *k["self"].shape[-2:])
    shape = columns(k, k["self"].shape)
    found = np.zeros((len(planes), math.prod(k["kernel_size"]), shape[-1]), k["self"].dtype)
    for place, window, row, column in pairs(k, planes.shape[1:]):
        for number, plane in enumerate(planes):
            found[number, place, window] = plane[row, column]
    return found.reshape(shape)


def lines(k: Arguments, plane: Shape) -> list[Any]:
    """For each axis where the kernel's places of each window lie."""
    found = []
    for n, count in enumerate(counts(k, plane)):
        kernel, dilation, padding, stride = (k[name][n] for name in NAMES)
        cells = np.arange(kernel)[:, np.newaxis] * dilation - padding
        found.append(cells + np.arange(count) * stride)
    return found


def arrays(k: Arguments) -> Terms:
    ys, xs = lines(k, k["self"].shape[-2:])
    far = [int(max(abs(line.min()), line.max())) + 1 for line in (ys, xs)]
    edges = [(0, 0)] * (k["self"].ndim - 2) + [(edge, edge) for edge in far]
    wide = np.pad(k["self"], edges)
    picked = wide[..., (ys + far[0])[:, None, :, None], (xs + far[1])[:, None]]
    return Terms(picked.reshape(columns(k, k["self"].shape)))


def planes_of(k: Arguments) -> Shape:
    *lead, rows, _ = k["grad_output"].shape
    return (*lead, rows // math.prod(k["kernel_size"]), *k["input_size"])


def grad_loops(k: Arguments) -> Any:
    shape = planes_of(k)
    count = math.prod(shape[:-2])
    given = k["grad_output"].reshape(count, math.prod(k["kernel_size"]), -1) if count else ()
    added: dict[tuple[int, int, int], list[float]] = {}
    for place, window, row, column in pairs(k, shape[-2:]):
        for number, rows in enumerate(given):
            added.setdefault((number, row, column), []).append(float(rows[place, window]))
    found = np.zeros((count, *shape[-2:]))
    for at, terms in added.items():
        found[at] = reals.total(terms)
    return found.reshape(shape)


def grad_arrays(k: Arguments) -> Terms:
    shape = planes_of(k)
    ys, xs = lines(k, shape[-2:])
    grad = k["grad_output"].reshape(*shape[:-2], len(ys), len(xs), ys.shape[1], xs.shape[1])
    found = []
    for each in (grad, np.abs(grad)):
        total = np.zeros(shape)
        for i, j in product(range(len(ys)), range(len(xs))):
            rows, columns_ = ((line >= 0) & (line < n) for line, n in
                              ((ys[i], shape[-2]), (xs[j], shape[-1])))  # fmt: skip
            part = each[..., i, j, :, :][..., rows, :][..., columns_]
            total[..., ys[i][rows][:, None], xs[j][columns_]] += part
        found.append(total)
    return Terms(found[0], found[1], summed=math.prod(k["kernel_size"]))


LENGTHS = tuple(row for name in NAMES for row in several(name, (2,), (2, 2, 2)))
VALUES = (
    *several("kernel_size", (0, 3), (2, -1)),
    *several("stride", (0, 1), (2, 0)),
    *several("dilation", (0, 2), (1, -2)),
    *several("padding", (-1, 2), (1, -1)),
)


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.ops.aten.im2col(k["self"], *(list(k[name]) for name in NAMES)) if k[
        "self"].numel() else None  # fmt: skip


def grad_torch(k: Arguments, torch: Any) -> Any:
    if not k["grad_output"].numel():
        return None
    given = (list(k[name]) for name in ("input_size", *NAMES))
    return torch.ops.aten.col2im(k["grad_output"], *given)


DEFAULTS = {"dilation": (1, 1), "padding": (0, 0), "stride": (1, 1)}
OF_A_KERNEL: dict[str, Any] = {"attributes": {"kernel_size": (1, 2), "stride": (1, 1),
                                              "dilation": (1, 1), "padding": (0, 1)}}  # fmt: skip

IM2COL = Statement(
    "aclnnIm2col",
    prototype=f"const aclTensor* self, {C_NAMES}, const aclTensor* out",
    takes=on(WITH_BFLOAT16, *FLOATS),
    defaults=DEFAULTS,
    inputs=(In("self", normal(2.0)),),
    outputs=(Out("out", lambda k: columns(k, k["self"].shape), "self"),),
    loops=loops,
    arrays=arrays,
    cost=0.0,
    kernel=dtype_of("self"),
    npu=aten("im2col", "self", *NAMES),
    torch=torch_says,
    **COMMON,
    edges=(
        Setup("numbers", (1, 3, 3), values={
            "self": [[[1.0, NAN, INF], [-INF, -0.0, 2], [3e38, 1e-40, 1]]]}),
        Setup("far", (1, 3, 3), attributes={"padding": (7, 40), "stride": (9, 11)}),
    ),
    invalid=(
        *defects.nulls("self", *NAMES, "out"),
        *defects.dtypes("self", found=DOUBLE),
        *defects.dtypes("out", found=FLOAT16),
        *defects.shapes("self", (4, 5), (1, 2, 2, 4, 5), (2, 0, 4, 5), (2, 2, 0, 5), (2, 2, 4, 0)),
        *LENGTHS,
        *VALUES,
        Invalid("no-window", {"kernel_size": (9, 3)}, ("self", "kernel_size"), ShapeError,
                whoever=True),
        *defects.shapes("out", (2, 12, 12), (12, 15), (3, 12, 15)),
    ),
)  # fmt: skip


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    given = Arguments({**DEFAULTS, **attributes}, {})
    return {"grad_output": columns(given, base)}


IM2COL_BACKWARD = Statement(
    "aclnnIm2colBackward",
    prototype=(
        f"const aclTensor* gradOutput, const aclIntArray* inputSize, {C_NAMES}, aclTensor* out"
    ),
    takes=on(WITH_BFLOAT16, *FLOATS),
    defaults=DEFAULTS,
    inputs=(In("grad_output", normal()),),
    outputs=(Out("out", planes_of, "grad_output"),),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("grad_output"),
    npu=aten("col2im", "grad_output", "input_size", *NAMES),
    torch=grad_torch,
    **{**COMMON, "attributes": {"input_size": (lambda base: base[-2:],), **COMMON["attributes"]}},
    mixed=mixed_floats("grad_output", output="out"),
    edges=(
        Setup("numbers", (1, 2, 2), values={"grad_output": [[1.0, NAN], [INF, 2.0]]},
              attributes=OF_A_KERNEL["attributes"] | {"padding": (0, 0), "input_size": (2, 2)}),
        Setup("far", (1, 3, 3), attributes={"padding": (7, 40), "stride": (9, 11)}),
    ),
    invalid=(
        *defects.nulls("grad_output", "input_size", *NAMES, "out"),
        *defects.dtypes("grad_output", "out", found=INT32),
        *defects.shapes("grad_output", (15,), (1, 2, 12, 15)),
        *several("input_size", (4,), (4, 5, 5)),
        *LENGTHS,
        *VALUES,
        *several("input_size", (0, 5), (4, -5)),
        *defects.shapes("grad_output", (2, 13, 15), blames=("grad_output", "kernel_size")),
        *defects.shapes("grad_output", (2, 12, 14), (12, 16)),
        *defects.shapes("out", (2, 4, 5), (2, 3, 4, 5), (2, 2, 5, 4)),
    ),
)  # fmt: skip
