"""aclnnSituGlu and aclnnSituGluGrad [src:situ-glu]."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT16, INT32
from npucall_conformance.statements.glu import opened
from npucall_conformance.statements.glu_backward import shapes
from npucall_conformance.statements.swi_glu import BAD_X, COMMON, TILING
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.parts import In, Out, Setup
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
OWN: dict[str, Any] = {
    **COMMON,
    "takes": FLOATS_WITH_BFLOAT16,
    "defaults": {"dim": -1, "beta": 1.0, "linear_beta": 0.0, "activate_left": True},
    "attributes": {
        "dim": (-1, 0), "beta": (2.0, 0.75), "linear_beta": (0.0, 1.5),
        "activate_left": (True, False),
    },
}  # fmt: skip
NUMBERS = (0.0, -0.0, 1.5, -12.0, 40.0, -40.0, 1e4, -1e4, INF, NAN)
HALVES = tuple(np.array([*product(NUMBERS, (1.0, -30.0, INF))]).T.reshape(-1))


def tanh_of(x: float, scale: float) -> float:
    return math.tanh(reals.divide(x, scale))


def up(k: Arguments, x: float) -> tuple[float, float]:
    """What is multiplied, and its slope."""
    limit = k["linear_beta"]
    if limit <= 0:
        return x, 1.0
    e = reals.exp(-2 * abs(x / limit))
    return limit * tanh_of(x, limit), 4 * e / (1 + e) ** 2


def parted(k: Arguments, row: Any) -> tuple[Any, Any]:
    half = row.shape[-1] // 2 if isinstance(row, np.ndarray) else len(row) // 2
    both = (row[..., :half], row[..., half:]) if isinstance(row, np.ndarray) else (
        row[:half], row[half:])  # fmt: skip
    return both if k["activate_left"] else both[::-1]


def row(k: Arguments, x: list[float]) -> list[float]:
    return [
        k["beta"] * tanh_of(a, k["beta"]) * reals.sigmoid(a) * up(k, b)[0]
        for a, b in zip(*parted(k, x), strict=True)
    ]


def joined(k: Arguments, gate: list[float], other: list[float]) -> list[float]:
    return gate + other if k["activate_left"] else other + gate


def grad_row(k: Arguments, upstream: list[float], x: list[float]) -> list[float]:
    gates, others, beta = [], [], k["beta"]
    for g, a, b in zip(upstream, *parted(k, x), strict=True):
        t, s, shut = tanh_of(a, beta), reals.sigmoid(a), reals.sigmoid(-a)
        value, slope = up(k, b)
        gates.append(g * value * (s * (1 - t * t) + beta * t * s * shut))
        others.append(g * (beta * t * s) * slope)
    return joined(k, gates, others)


def ups(k: Arguments, b: Any) -> tuple[Any, Any]:
    limit = k["linear_beta"]
    if limit <= 0:
        return b, np.ones_like(b)
    with np.errstate(over="ignore"):
        return limit * np.tanh(b / limit), np.cosh(b / limit) ** -2.0


def vector(k: Arguments, x: Any) -> Any:
    a, b = parted(k, x)
    return ups(k, b)[0] * (opened(a) * np.tanh(a / k["beta"]) * k["beta"])


def grad_vector(k: Arguments, g: Any, x: Any) -> Any:
    a, b = parted(k, x)
    t, (value, slope) = np.tanh(a / k["beta"]), ups(k, b)
    gate = opened(a) * (1 - t * t + k["beta"] * t * opened(-a))
    size = opened(a) * (1 + t * t + np.abs(k["beta"] * t * opened(-a)))
    other = opened(a) * t * k["beta"]
    wide = np.abs(g * other) * (1 if k["linear_beta"] <= 0 else 2)
    pairs = ((g * value * gate, g * other * slope), (np.abs(g * value) * size, wide))
    order = 1 if k["activate_left"] else -1
    found, sizes = (np.concatenate(each[::order], axis=-1) for each in pairs)
    return found, sizes


def torch_says(k: Arguments, torch: Any) -> Any:
    a, b = k["x"].chunk(2, k["dim"])[:: 1 if k["activate_left"] else -1]
    limit = k["linear_beta"]
    if limit > 0:
        b = limit * torch.tanh(b / limit)
    return k["beta"] * torch.tanh(a / k["beta"]) * torch.sigmoid(a) * b


def torch_gradient(k: Arguments, torch: Any) -> Any:
    x = k["x"].detach().clone().requires_grad_()
    found = torch_says(Arguments({**k.values, "x": x}, k.dtypes), torch)
    return torch.autograd.grad(found, x, k["grad_y"])[0]


SITU_GLU = rowwise(
    "aclnnSituGlu",
    prototype="const aclTensor* x, int64_t dim, double beta, double linearBeta, "
    "bool activateLeft, const aclTensor* out",
    inputs=(In("x", normal(2.0)),),
    output=Out("out", lambda k: shapes(k["x"].shape, {"dim": k["dim"]})["grad_out"], "x"),
    row=row,
    vector=vector,
    npu="torch_npu has no function for it",
    torch=torch_says,
    empty_shapes=((0,), (0, 4), (2, 0), (2, 0, 4), (0, 0)),
    edges=(Setup("halves", (60,), values={"x": HALVES}, attributes={"dim": 0}),
           Setup("beta-0", (4,), values={"x": (0.0, 3.0, 1.0, -2.0)},
                 attributes={"dim": 0, "beta": 0.0})),
    invalid=(
        *defects.nulls("x", "out"),
        *defects.dtypes("x", found=INT32),
        *defects.dtypes("out", found=FLOAT16),
        *BAD_X,
        *defects.shapes("out", (4, 6), (2, 6), (3,), (1, 4, 3), status=TILING),
    ),
    **OWN,
)  # fmt: skip

SITU_GLU_GRAD = rowwise(
    "aclnnSituGluGrad",
    prototype="const aclTensor* gradY, const aclTensor* x, int64_t dim, double beta, "
    "double linearBeta, bool activateLeft, const aclTensor* out",
    inputs=(In("grad_y", normal()), In("x", normal(2.0))),
    output=Out("out", "x", "x"),
    row=grad_row,
    vector=grad_vector,
    shapes=lambda base, attributes: {"grad_y": shapes(base, attributes)["grad_out"], "x": base},
    npu="torch_npu has no function for it",
    torch=torch_gradient,
    empty_shapes=((0,), (0, 4), (2, 0), (2, 0, 4), (0, 0)),
    edges=(Setup("halves", (60,), values={"x": HALVES, "grad_y": (1.0, -2.0, 0.0) * 10},
                 attributes={"dim": 0}),),
    invalid=(
        *defects.nulls("grad_y", "x", "out"),
        *defects.dtypes("grad_y", found=INT32),
        *defects.dtypes("x", "out", found=FLOAT16),
        *BAD_X,
        *defects.shapes("grad_y", (4, 6), (2, 6), (3,), (1, 4, 3), status=TILING),
        *defects.shapes("out", (6, 4), (4, 3), (1, 4, 6), status=TILING),
    ),
    **OWN,
)  # fmt: skip
