"""aclnnCdist and aclnnCdistBackward [src:cdist]."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT16
from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import common_shape, dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
PAIR, FIVE = ("x1", "x2"), ("grad", "x1", "x2", "cdist", "out")
SECOND = 3
"""Points of the second set."""
EDGES = {
    "x1": [[0.0, 0, 0], [1, -2, 300], [INF, 1, 2], [NAN, 0, 1]],
    "x2": [[0.0, 0, 0], [1, -2, 299], [1, 1, 1]],
}
LARGEST = Setup("largest", (2, 9, 5), attributes={"p": INF})
COMMON: dict[str, Any] = {
    "takes": FLOATS_WITH_BFLOAT16,
    "legacy": (),
    "base_shapes": ((4, 6), (3, 5, 7), (2, 3, 4, 5), (1, 1)),
    "layout_shape": (2, 3, 4),
    "rank_shapes": ((1, 3), (2, 1, 3, 1, 1, 2, 2), (2, 1, 3, 1, 2)),
    "empty_shapes": ((0, 3, 4), (2, 0, 4), (2, 3, 0)),
    "sized": lambda count: (max(count // 32, 1), 4, 8),
    "large_shape": (31, 47, 71),
    "large": (
        Setup("many-rows", (33_011, 3)),
        Setup("long-rows", (2, 50_021)),
        Setup("one-row", (1, 100_003)),
        Setup("many-pairs", shapes={
            "x1": (331, 5), "x2": (307, 5), **dict.fromkeys(("grad", "cdist"), (331, 307))}),
    ),
}  # fmt: skip


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    pairs = (*base[:-1], SECOND)
    second = (*base[:-2], SECOND, base[-1])
    return {"x1": base, "x2": second, "grad": pairs, "cdist": pairs}


def points(draw: Draw) -> Any:
    """For the largest difference a few digits alone, so that it is exact in every dtype."""
    found = draw.random.normal(0, 1, draw.shape)
    p = draw.earlier.get("p", 2.0)
    return np.round(found * 8) / 8 if math.isinf(p) or p < 0 else found


def apart(k: Any) -> Any:
    """The differences of all pairs, (..., P, R, M)."""
    return k["x1"][..., :, np.newaxis, :] - k["x2"][..., np.newaxis, :, :]


def norms(d: Any, p: float) -> Any:
    if not d.shape[-1]:
        return np.zeros(d.shape[:-1])
    if p in (0, 1, 2, -1, INF):
        return np.linalg.norm(d, ord=INF if p < 0 else p, axis=-1)
    most = np.abs(d).max(-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        parts = np.nansum(np.abs(d / most[..., np.newaxis]) ** p, -1)
        return np.where(most == 0, 0, np.where(most < INF, most * np.exp(np.log(parts) / p), most))


def norm(row: list[float], p: float) -> float:
    if p == 0:
        return float(sum(x != 0 for x in row))
    largest = NAN if any(map(math.isnan, row)) else max(row, default=0.0)
    if math.isinf(p) or largest == 0 or not math.isfinite(largest):
        return largest
    return largest * float(reals.total([(x / largest) ** p for x in row]) ** (1 / p))


def pairs(k: Arguments) -> Shape:
    batch = common_shape(*(k[name].shape[:-2] for name in PAIR))
    return (*(batch or ()), k["x1"].shape[-2], k["x2"].shape[-2])


def loops(k: Arguments) -> Any:
    d = np.abs(apart(k))
    rows = d.reshape(math.prod(d.shape[:-1]), d.shape[-1]).tolist()
    return np.reshape([norm(row, k["p"]) for row in rows], pairs(k))


def arrays(k: Arguments) -> Terms:
    return Terms(norms(apart(k), k["p"]), summed=max(k["x1"].shape[-1], 1))


def torch_says(k: Arguments, torch: Any) -> Any:
    return torch.cdist(k["x1"], k["x2"], k["p"], "donot_use_mm_for_euclid_dist")


CDIST = Statement(
    "aclnnCdist",
    prototype="const aclTensor* x1, const aclTensor* x2, float p, int64_t compute_mode, "
    "aclTensor* out",
    inputs=(In("x1", points), In("x2", points)),
    outputs=(Out("out", pairs, "x1"),),
    defaults={"p": 2.0, "compute_mode": 2},
    attributes={"p": (2.0, 1.0, 3.0, 0.5, 0.0), "compute_mode": (2,)},
    loops=loops,
    arrays=arrays,
    shapes=lambda base, given: {n: shapes(base, given)[n] for n in PAIR},
    kernel=dtype_of("x1"),
    npu=aten("_cdist_forward", "x1", "x2", "p", "compute_mode"),
    torch=torch_says,
    **COMMON,
    broadcast=(
        Setup("first", shapes={"x1": (3, 4), "x2": (2, 5, 4)}),
        Setup("both", shapes={"x1": (2, 1, 3, 4), "x2": (5, 2, 4)}),
        Setup("higher-rank", shapes={"x1": (2, 3, 4), "x2": (6, 1, 2, 4)}),
    ),
    reductions=(Setup("another-mode", attributes={"p": 1.0, "compute_mode": 7}),),
    edges=(
        Setup("points", values=EDGES),
        Setup("large", values={"x1": [[3e4, -3e4]], "x2": [[-3e4, 3e4], [0, 1]]}),
        LARGEST,
    ),
    invalid=(
        *defects.nulls(*PAIR, "out"),
        *defects.dtypes(*PAIR, "out", found=DOUBLE),
        *defects.dtypes("out", "x2", found=FLOAT16),
        *defects.ranks(*PAIR, "out"),
        *(row for name in (*PAIR, "out") for row in defects.shapes(name, (4,))),
        *defects.shapes("x2", (2, 3, 5), (2, 3, 1)),
        *defects.values("p", -1.0, NAN),
        *defects.values("compute_mode", 1, 0),
        *defects.shapes("x2", (3, 3, 4), blames=PAIR),
        *defects.shapes("out", (2, 3, 4), (6, 3), (1, 3, 3)),
    ),
)  # fmt: skip


def slopes(d: float, far: float, p: float) -> float:
    """The derivative of a distance with respect to a number of the first point."""
    sign = (d > 0) - (d < 0)
    if p == 0:
        return 0.0
    if p == 1:
        return sign
    if math.isinf(p) or p < 0:
        return sign if float(np.float32(abs(d))) == far else 0.0
    if far == 0 or d == 0:
        return 0.0
    if p == 2:
        return reals.divide(d, far)
    return sign * float(np.float64(reals.divide(abs(d), abs(far))) ** (p - 1))


def gradient_loops(k: Arguments) -> Any:
    extents, second = k["x1"].shape, k["x2"].shape[-2]
    x2 = np.broadcast_to(k["x2"], (*extents[:-2], second, extents[-1]))
    first = k["x1"].reshape(math.prod(extents[:-2]), *extents[-2:]).tolist()
    others = x2.reshape(len(first), second, extents[-1]).tolist()
    upstream, far = (
        k[name].reshape(len(first), extents[-2], second).tolist() for name in ("grad", "cdist")
    )
    found = []
    for batch, rows in enumerate(first):
        for i, row in enumerate(rows):
            found.append([
                reals.total([
                    upstream[batch][i][j] * slopes(x - other[m], far[batch][i][j], k["p"])
                    for j, other in enumerate(others[batch])
                ])
                for m, x in enumerate(row)
            ])  # fmt: skip
    return np.reshape(found, extents)


def gradient_arrays(k: Arguments) -> Terms:
    d, p = apart(k), k["p"]
    far = k["cdist"][..., np.newaxis]
    sign = np.where(d > 0, 1.0, np.where(d < 0, -1.0, 0.0))
    if p in (0, 1):
        each = sign * p
    elif math.isinf(p) or p < 0:
        each = np.where(np.abs(d).astype(np.float32) == far, sign, 0)
    else:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            each = d / far if p == 2 else sign * np.abs(d / far) ** (p - 1)
        each = np.where((far == 0) | (d == 0), 0, each)
    terms = k["grad"][..., np.newaxis] * each
    return Terms(terms.sum(-2), np.abs(terms).sum(-2), summed=max(terms.shape[-2], 1))


def torch_gradient(k: Arguments, torch: Any) -> Any:
    if not k["grad"].numel() or k["x1"].shape[:-2] != k["x2"].shape[:-2]:
        return None
    p = INF if k["p"] < 0 else k["p"]
    if math.isinf(p):  # compares with less digits than these have
        return None
    return torch.ops.aten._cdist_backward(k["grad"], k["x1"], k["x2"], p, k["cdist"])  # noqa: SLF001


CDIST_BACKWARD = Statement(
    "aclnnCdistBackward",
    prototype="const aclTensor* grad, const aclTensor* x1, const aclTensor* x2, "
    "const aclTensor* cdist, float p, aclTensor* out",
    inputs=(
        In("x1", points),
        In("x2", points),
        In("grad", normal()),
        In("cdist", lambda draw: norms(apart(draw), draw.earlier.get("p", 2.0)), apart=True,
           tiny=False),
    ),
    outputs=(Out("out", "x1", "x1"),),
    defaults={"p": 2.0},
    attributes={"p": (2.0, 1.0, 3.0, 0.5, 0.0)},
    loops=gradient_loops,
    arrays=gradient_arrays,
    shapes=shapes,
    kernel=dtype_of("grad"),
    npu=aten("_cdist_backward", "grad", "x1", "x2", "p", "cdist"),
    torch=torch_gradient,
    faint=lambda k: () if k["p"] else ("out",),
    **COMMON,
    broadcast=(
        Setup("second", shapes={"x1": (2, 3, 4), "x2": (1, 3, 4)}),
    ),
    edges=(
        Setup("points", values={
            "x1": [[0.0, 0, 0], [1, -2, 300], [2, 2, 2]], "x2": EDGES["x2"],
            "cdist": [[0.0, 299, 1], [300, 1, 299], [2, 300, 0]],
            "grad": [[1.0, 2, 3], [-1, INF, 1], [2, 1, NAN]]}),
        LARGEST,
        replace(LARGEST, note="largest-again", attributes={"p": -1.0}),
    ),
    invalid=(
        *defects.nulls(*FIVE),
        *defects.dtypes(*FIVE, found=DOUBLE),
        *defects.dtypes(*FIVE[1:], found=FLOAT16),
        *defects.shapes("grad", (4,), (1,) * 8, block="rank"),
        *(row for name in FIVE[1:] for row in defects.shapes(name, (3, 4), block="rank")),
        *defects.shapes("x2", (2, 3, 5), (2, 3, 1)),
        *defects.shapes("x2", (3, 3, 4), blames=PAIR),
        Invalid("x1-broadcasts", {"x1": {"shape": (1, 3, 4)}}, PAIR, ShapeError),
        *defects.shapes("cdist", (2, 3, 4), (2, 1, 3)),
        *defects.shapes("grad", (2, 3, 4), (2, 1, 3)),
        *defects.shapes("out", (2, 3, 3), (2, 4, 3)),
        *defects.values("p", -2.0, NAN),
    ),
)  # fmt: skip
