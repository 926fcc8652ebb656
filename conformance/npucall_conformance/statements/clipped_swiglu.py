"""aclnnClippedSwiglu and aclnnClippedSwigluGrad [src:clipped-swiglu]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16, INT32, INT64
from npucall.errors import AclnnStatus
from npucall.tensors import Shape
from npucall_conformance.statements.ge_glu import half_of
from npucall_conformance.statements.glu import even, opened
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, choice, mixed, normal
from npucall_conformance.stating.parts import Attributes, In, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
NUMBERS = {"alpha": 1.702, "limit": 7.0, "bias": 1.0}
NAMES = (
    "const aclTensor* groupIndexOptional, int64_t dim, double alpha, double limit, double bias, "
    "bool interleaved"
)


def groups(draw: Draw) -> Any:
    """About half of the rows."""
    dim = draw["dim"] % max(len(draw.shapes["x"]), 1)
    rows = prod(draw.shapes["x"][:dim])
    return np.full(draw.shape, max(rows // 2 // max(prod(draw.shape), 1), 1))


X = In("x", mixed(normal(4.0), choice(7.0, -7.0, 0.5), 0.1))
GROUPS = In("group_index", groups, dtypes=(INT64,), optional=True)


def half(base: Shape, given: Attributes) -> Shape:
    return half_of(base, given["dim"])


def pairs(k: Arguments) -> tuple[Any, Any, Any]:
    """Both numbers of each pair, by rows; and which rows any group has."""
    x = k["x"]
    dim = k["dim"] % x.ndim
    rows = x.reshape(prod(x.shape[:dim]), -1)
    length = rows.shape[1] // 2
    first, second = (
        (rows[:, ::2], rows[:, 1::2]) if k["interleaved"] else (rows[:, :length], rows[:, length:])
    )
    last = len(rows) if k["group_index"] is None else int(k["group_index"].sum())
    return first, second, np.arange(len(rows))[:, None] < last


def together(k: Arguments, first: Any, second: Any) -> Any:
    """What belongs to the pairs, in the places of x."""
    if k["interleaved"]:
        return np.stack((first, second), -1).reshape(k["x"].shape)
    return np.concatenate((first, second), 1).reshape(k["x"].shape)


def clipped(k: Arguments, a: float, b: float) -> tuple[float, float]:
    limit = k["limit"]
    low = min(a, limit)
    return low, (limit if b > limit else max(b, -limit)) + k["bias"]


def loops(k: Arguments) -> Any:
    first, second, kept = pairs(k)
    found = np.zeros(first.shape)
    for place in np.ndindex(first.shape):
        a, b = clipped(k, float(first[place]), float(second[place]))
        if kept[place[0], 0]:
            found[place] = a * reals.sigmoid(k["alpha"] * a) * b
    return found.reshape(half(k["x"].shape, k.values))


def clips(k: Arguments, first: Any, second: Any) -> tuple[Any, Any]:
    return np.minimum(first, k["limit"]), np.clip(second, -k["limit"], k["limit"]) + k["bias"]


def arrays(k: Arguments) -> Terms:
    first, second, kept = pairs(k)
    a, b = clips(k, first, second)
    value = opened(k["alpha"] * a) * a * b
    size = np.abs(opened(k["alpha"] * a) * a) * (1 + np.abs(k["alpha"] * a))
    size = size * (np.abs(b - k["bias"]) + abs(k["bias"]))
    shape = half(k["x"].shape, k.values)
    return Terms(
        np.where(kept, value, 0.0).reshape(shape), np.where(kept, size, 0.0).reshape(shape)
    )


def grad_loops(k: Arguments) -> Any:
    first, second, kept = pairs(k)
    upstream = k["grad_y"].reshape(first.shape)
    of_first, of_second = np.zeros(first.shape), np.zeros(first.shape)
    for place in np.ndindex(first.shape):
        x, y, g = (float(each[place]) for each in (first, second, upstream))
        a, b = clipped(k, x, y)
        s, rest = reals.sigmoid(k["alpha"] * a), reals.sigmoid(-k["alpha"] * a)
        if kept[place[0], 0] and x <= k["limit"]:
            of_first[place] = g * b * (s * (1 + k["alpha"] * a * rest))
        if kept[place[0], 0] and -k["limit"] <= y <= k["limit"]:
            of_second[place] = g * (a * s)
    return together(k, of_first, of_second)


def grad_arrays(k: Arguments) -> Terms:
    first, second, kept = pairs(k)
    g = k["grad_y"].reshape(first.shape)
    a, b = clips(k, first, second)
    inner = k["alpha"] * a
    bend, wide = inner * opened(-inner), np.abs(b - k["bias"]) + abs(k["bias"])
    one = g * b * (opened(inner) * (1 + bend))
    other = g * a * opened(inner)
    inside = kept & (first <= k["limit"]), kept & (np.abs(second) <= k["limit"])
    sizes = (np.abs(g) * wide * opened(inner) * (1 + np.abs(bend)),
             np.abs(other) * (1 + np.abs(inner)))  # fmt: skip
    value = together(k, *(np.where(m, v, 0.0) for m, v in zip(inside, (one, other), strict=True)))
    size = together(k, *(np.where(m, v, 0.0) for m, v in zip(inside, sizes, strict=True)))
    return Terms(value, size)


def torch_says(k: Arguments, torch: Any, x: Any = None) -> Any:
    x = k["x"] if x is None else x
    dim = k["dim"] % x.ndim
    rows = x.reshape(prod(x.shape[:dim]), -1)
    a, b = (rows[:, ::2], rows[:, 1::2]) if k["interleaved"] else rows.chunk(2, 1)
    a, b = a.clamp(max=k["limit"]), b.clamp(-k["limit"], k["limit"])
    found = a * torch.sigmoid(k["alpha"] * a) * (b + k["bias"])
    last = len(rows) if k["group_index"] is None else int(k["group_index"].sum())
    kept = torch.arange(len(rows))[:, None] < last
    return torch.where(kept, found, 0.0).reshape(half(tuple(x.shape), k.values))


def torch_gradient(k: Arguments, torch: Any) -> Any:
    x = k["x"].clone().requires_grad_()
    torch_says(k, torch, x).backward(k["grad_y"])
    return x.grad


COMMON: dict[str, Any] = {
    "takes": FLOATS_WITH_BFLOAT16,
    "defaults": {"dim": -1, **NUMBERS, "interleaved": True},
    "attributes": {"dim": (-1, 0, lambda base: len(base) // 2), "interleaved": (True, False)},
    "base_shapes": ((4, 6), (2, 6, 8), (18,), (2, 3, 4, 6)),
    "large_shape": (338, 306),
    "layout_shape": (4, 6),
    "rank_shapes": ((6,), (2, 1, 3, 1, 2, 2, 1, 2), (2, 1, 1, 1, 2, 1, 1, 2)),
    "sized": lambda count: (2 * max(count // 128, 1), 64),
    "fitted": even,
    "kernel": dtype_of("x"),
    "empty_shapes": (),
    "mixed": tuple(
        Setup(f"{name}-{value}", attributes={name: value})
        for name, value in (("alpha", 0.5), ("limit", 2.0), ("bias", 0.0), ("bias", -1.5))
    ),
    "npu": "torch_npu calls it in npu_clipped_swiglu, where the suite does not look",
    "large": (Setup("many-rows", (50_022, 2)), Setup("long-rows", (4, 33_012))),
}
BAD_X = (
    *defects.values("limit", 0.0, -1.0, NAN, status=TILING),
    *defects.shapes("x", (), status=TILING),
    *defects.values("dim", 2, -3, status=TILING),
    *defects.shapes("x", (4, 7), blames=("x", "dim"), status=TILING),
    *defects.shapes("x", (0, 6), status=TILING),
    *defects.shapes("group_index", (), (2, 1), status=TILING),
)
EDGES = (Setup("pairs", (12,), values={
    "x": (0.0, 7.0, -0.0, 7.5, 8.0, -8.0, INF, -INF, NAN, 1.0, -40.0, NAN),
}, absent=("group_index",)),)  # fmt: skip


def shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    return {"x": base, "group_index": (2,)}


def grad_shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    return {"grad_y": half(base, given), **shapes(base, given)}


CLIPPED_SWIGLU = Statement(
    "aclnnClippedSwiglu",
    (X, GROUPS),
    (Out("out", lambda k: half(k["x"].shape, k.values), "x"),),
    prototype=f"const aclTensor* x, {NAMES}, const aclTensor* out",
    legacy=("Ascend950",),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    torch=torch_says,
    edges=EDGES,
    invalid=(
        *defects.nulls("x", "out"),
        *defects.dtypes("x", found=INT32),
        *defects.dtypes("group_index", found=INT32),
        *defects.dtypes("out", found=FLOAT16),
        *BAD_X,
        *defects.shapes("out", (4, 6), (2, 6), (3,), (1, 4, 3), status=TILING),
    ),
    **COMMON,
)  # fmt: skip

CLIPPED_SWIGLU_GRAD = Statement(
    "aclnnClippedSwigluGrad",
    (In("grad_y", normal()), X, GROUPS),
    (Out("grad_x_out", "x", "x"),),
    prototype=f"const aclTensor* gradY, const aclTensor* x, {NAMES}, const aclTensor* gradXOut",
    legacy=(),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    torch=torch_gradient,
    edges=EDGES,
    invalid=(
        *defects.nulls("grad_y", "x", "grad_x_out"),
        *defects.dtypes("grad_y", found=INT32),
        *defects.dtypes("x", found=FLOAT16),
        *defects.dtypes("group_index", found=INT32),
        *defects.dtypes("grad_x_out", found=FLOAT16),
        *BAD_X,
        *defects.shapes("grad_y", (4, 6), (2, 6), (3,), status=TILING),
        *defects.shapes("grad_x_out", (6, 4), (4, 3), status=TILING),
    ),
    **COMMON,
)  # fmt: skip
