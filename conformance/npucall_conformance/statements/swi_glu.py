"""aclnnSwiGlu and aclnnSwiGluGrad [src:swi-glu]."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, INT32
from npucall.errors import AclnnStatus, ShapeError
from npucall_conformance.statements.glu import even, opened
from npucall_conformance.statements.glu_backward import shapes
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.parts import In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
TAKES = {**FLOATS_WITH_BFLOAT16, **on(("Ascend310P",), FLOAT, FLOAT16)}
TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
COMMON: dict[str, Any] = {
    "takes": TAKES,
    "legacy": (),
    "defaults": {"dim": -1},
    "attributes": {"dim": (-1, 0, lambda base: len(base) // 2)},
    "base_shapes": ((4, 6), (2, 6, 8), (18,), (2, 3, 4, 6)),
    "large_shape": (338, 306),
    "layout_shape": (4, 6),
    "rank_shapes": ((6,), (2, 1, 3, 1, 2, 2, 1, 2), (2, 1, 1, 1, 2, 1, 1, 2)),
    "sized": lambda count: (count + count % 2,),
    "fitted": even,
    "kernel": dtype_of("x"),
}
BAD_X = (
    *defects.shapes("x", (), status=TILING),
    *defects.values("dim", 2, -3, status=TILING),
    *defects.shapes("x", (4, 7), blames=("x", "dim"), status=TILING),
)


def row(_: Arguments, x: list[float]) -> list[float]:
    half = len(x) // 2
    return [a * reals.sigmoid(a) * b for a, b in zip(x[:half], x[half:], strict=True)]


def vector(_: Arguments, x: Any) -> Any:
    half = x.shape[-1] // 2
    return opened(x[..., :half]) * x[..., :half] * x[..., half:]


def grad_row(_: Arguments, upstream: list[float], x: list[float]) -> list[float]:
    half = len(upstream)
    first, second = [], []
    for g, a, b in zip(upstream, x[:half], x[half:], strict=True):
        first.append(g * b * (reals.sigmoid(a) * (1 + a * reals.sigmoid(-a))))
        second.append(g * (a * reals.sigmoid(a)))
    return first + second


def grad_vector(_: Arguments, g: Any, x: Any) -> Any:
    a, b = x[..., : g.shape[-1]], x[..., g.shape[-1] :]
    value = np.concatenate((opened(a) * (1 + opened(-a) * a) * b * g, opened(a) * a * g), axis=-1)
    size = np.abs(opened(a) * (1 + np.abs(opened(-a) * a)) * b * g)
    return value, np.concatenate((size, np.abs(value[..., g.shape[-1] :])), axis=-1)


SWI_GLU = rowwise(
    "aclnnSwiGlu",
    prototype="const aclTensor* x, int64_t dim, const aclTensor* out",
    inputs=(In("x", normal(2.0)),),
    output=Out("out", lambda k: shapes(k["x"].shape, {"dim": k["dim"]})["grad_out"], "x"),
    row=row,
    vector=vector,
    npu="torch_npu calls it in npu_swiglu, where the suite does not look",
    torch=lambda k, torch: torch.nn.functional.silu(k["x"].chunk(2, k["dim"])[0])
    * k["x"].chunk(2, k["dim"])[1],
    empty_shapes=((0,), (0, 4), (2, 0), (2, 0, 4), (0, 0)),
    edges=(Setup("halves", (60,), values={
        "x": tuple(np.array([*product((0.0, -0.0, 1.5, -12.0, 80.0, -80.0, 1e4, -1e4, INF, NAN),
                                      (1.0, -300.0, INF))]).T.reshape(-1)),
    }, attributes={"dim": 0}),),
    invalid=(
        *defects.nulls("x", "out"),
        *defects.dtypes("x", found=INT32),
        *defects.no_bfloat16("x"),
        *defects.dtypes("out", found=FLOAT16),
        *BAD_X,
        *defects.shapes("out", (4, 6), (2, 6), (3,), (1, 4, 3), status=TILING),
    ),
    **COMMON,
)  # fmt: skip

SWI_GLU_GRAD = rowwise(
    "aclnnSwiGluGrad",
    prototype="const aclTensor* yGrad, const aclTensor* x, int64_t dim, const aclTensor* out",
    inputs=(In("y_grad", normal()), In("x", normal(2.0))),
    output=Out("out", "x", "x"),
    row=grad_row,
    vector=grad_vector,
    shapes=lambda base, attributes: {"y_grad": shapes(base, attributes)["grad_out"], "x": base},
    npu="torch_npu calls it in the gradient of npu_swiglu, where the suite does not look",
    empty_shapes=(),
    edges=(Setup("halves", (60,), values={
        "x": tuple(np.array([*product((0.0, -0.0, 1.5, -12.0, 40.0, -40.0, 1e4, -1e4, INF, NAN),
                                      (1.0, -300.0, INF))]).T.reshape(-1)),
        "y_grad": (1.0, -2.0, 0.0) * 10,
    }, attributes={"dim": 0}),),
    invalid=(
        *defects.nulls("y_grad", "x", "out"),
        *defects.dtypes("y_grad", found=INT32),
        *defects.no_bfloat16("y_grad"),
        *defects.dtypes("x", "out", found=FLOAT16),
        *BAD_X,
        *defects.shapes("y_grad", (4, 6), (2, 6), (3,), (1, 4, 3), status=TILING),
        *defects.shapes("out", (6, 4), (4, 3), (1, 4, 6), status=TILING),
        Invalid("no-rows", {"y_grad": {"shape": (0, 3)}, "x": {"shape": (0, 6)},
                            "out": {"shape": (0, 6)}}, ("x",), ShapeError, TILING),
    ),
    **COMMON,
)  # fmt: skip
