"""aclnnRmsNorm and aclnnRmsNormGrad [src:rms-norm]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, INT32
from npucall.errors import AclnnStatus, DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
TAKES = {**FLOATS_WITH_BFLOAT16, **on(("Ascend310P",), FLOAT, FLOAT16)}
BUT_950 = ("Ascend910B", "Ascend910_93", "Ascend310P")
EPSILON = 1e-6
SHAPES: dict[str, Any] = {
    "base_shapes": ((4, 6), (3, 5, 7), (2, 3, 4, 5)),
    "rank_shapes": ((5,), (2, 1, 3, 1, 1, 2, 1, 2), (2, 1, 3, 1, 2)),
    "sized": lambda count: (max(count // 96, 1), 96),
    "large": (Setup("many-rows", (12_301, 8)), Setup("long-rows", (3, 33_011)),
              Setup("one-row", (1, 100_003))),
    "empty_shapes": (),
}  # fmt: skip
ROWS = {
    "x": [[0.0, 0, 0, 0], [1, NAN, 2, 3], [INF, 1, 2, 3], [1e4, -1e4, 0, 1]],
}


def as_rows(k: Arguments, name: str) -> Any:
    return k[name].reshape(k[name].size // k["gamma"].size, k["gamma"].size)


def ones(k: Arguments) -> Shape:
    lead = k["x"].ndim - k["gamma"].ndim
    return tuple(k["x"].shape[:lead]) + (1,) * k["gamma"].ndim


def tail(base: Shape) -> Shape:
    """Of what has many dimensions the last two, else the last."""
    return base[-2:] if len(base) > 2 else base[-1:]


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    one = base[: len(base) - len(tail(base))] + (1,) * len(tail(base))
    return {"dy": base, "x": base, "rstd": one, "gamma": tail(base)}


def forward_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    return {name: shapes(base, attributes)[name] for name in ("x", "gamma")}


def deviations(draw: Draw) -> Any:
    """What the forward operator gives for the rows that were drawn."""
    rows = draw["x"].reshape(math.prod(draw.shape), -1) if draw["x"].size else np.ones(draw.shape)
    return 1 / np.sqrt((rows**2).mean(-1) + 1e-3).reshape(draw.shape)


def loops(k: Arguments) -> dict[str, Any]:
    gamma, found, rstds = k["gamma"].reshape(-1).tolist(), [], []
    for row in as_rows(k, "x").tolist():
        rstd = reals.divide(
            1.0, math.sqrt(reals.total([x * x for x in row]) / len(row) + k["epsilon"])
        )
        found += [x * rstd * w for x, w in zip(row, gamma, strict=True)]
        rstds.append(rstd)
    return {"y_out": np.reshape(found, k["x"].shape), "rstd_out": np.reshape(rstds, ones(k))}


def arrays(k: Arguments) -> dict[str, Terms]:
    x = as_rows(k, "x")
    rstd = (np.einsum("ij,ij->i", x, x)[:, None] / x.shape[1] + k["epsilon"]) ** -0.5
    y = k["gamma"].reshape(-1) * (rstd * x)
    return {"y_out": Terms(y.reshape(k["x"].shape)), "rstd_out": Terms(rstd.reshape(ones(k)))}


def torch_says(k: Arguments, torch: Any) -> Any:
    rows = torch.nn.functional.rms_norm(k["x"], k["gamma"].shape, k["gamma"], k["epsilon"])
    return {"y_out": rows}


def grad_loops(k: Arguments) -> dict[str, Any]:
    gamma, found, normals = k["gamma"].reshape(-1).tolist(), [], []
    upstream = as_rows(k, "dy").tolist()
    for g, row, rstd in zip(upstream, as_rows(k, "x").tolist(), k["rstd"].reshape(-1).tolist(),
                            strict=True):  # fmt: skip
        form = [x * rstd for x in row]
        d = [a * w for a, w in zip(g, gamma, strict=True)]
        share = reals.total([a * n for a, n in zip(d, form, strict=True)]) / len(row)
        found += [rstd * (a - n * share) for a, n in zip(d, form, strict=True)]
        normals.append(form)
    dgamma = [reals.total([g[c] * n[c] for g, n in zip(upstream, normals, strict=True)])
              for c in range(len(gamma))]  # fmt: skip
    shape = k["x"].shape
    return {"dx_out": np.reshape(found, shape), "dgamma_out": np.reshape(dgamma, k["gamma"].shape)}


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    g, rstd = as_rows(k, "dy"), k["rstd"].reshape(-1, 1)
    form, d = as_rows(k, "x") * rstd, as_rows(k, "dy") * k["gamma"].reshape(-1)
    share = (form * d).mean(1, keepdims=True)
    sizes = np.abs(rstd) * (np.abs(d) + np.abs(form * d).mean(1, keepdims=True) * np.abs(form))
    shape, of_gamma = k["x"].shape, k["gamma"].shape
    dgamma = Terms((g * form).sum(0).reshape(of_gamma), np.abs(g * form).sum(0).reshape(of_gamma),
                   summed=g.shape[0])  # fmt: skip
    dx = (d - share * form) * rstd
    return {"dx_out": Terms(dx.reshape(shape), sizes.reshape(shape)), "dgamma_out": dgamma}


MIXED = (
    Setup(dtypes={"gamma": FLOAT}, only=(FLOAT16, BF16), products=tuple(FLOATS_WITH_BFLOAT16)),
)
GAMMA = In("gamma", uniform(0.5, 2.0), own=True)
NO_MIX = Invalid("gamma-float-of-310p", {"gamma": {"dtype": FLOAT}}, ("gamma",), DTypeError,
                 base=Setup(dtypes=dict.fromkeys(("dy", "x", "gamma"), FLOAT16)),
                 products=("Ascend310P",))  # fmt: skip

RMS_NORM = Statement(
    "aclnnRmsNorm",
    prototype=(
        "const aclTensor* x, const aclTensor* gamma, double epsilon, const aclTensor* yOut, "
        "const aclTensor* rstdOut"
    ),
    takes=TAKES,
    legacy=(),
    defaults={"epsilon": EPSILON},
    inputs=(In("x", normal(2.0)), GAMMA),
    outputs=(
        Out("y_out", "x", "x"),
        Out("rstd_out", ones, lambda _: FLOAT, own=True),
    ),
    loops=loops,
    arrays=arrays,
    shapes=forward_shapes,
    kernel=dtype_of("x"),
    npu="torch_npu gives it in two tensors of npu_rms_norm, whose epsilon is a keyword",
    torch=torch_says,
    **SHAPES,
    attributes={"epsilon": (EPSILON, 0.25)},
    mixed=MIXED,
    edges=(Setup("rows", (4, 4), values=ROWS),),
    invalid=(
        *defects.nulls("x", "gamma", "y_out", "rstd_out"),
        *defects.dtypes("x", found=INT32),
        *defects.dtypes("x", found=BF16, products=("Ascend310P",)),
        NO_MIX,
        *defects.dtypes("gamma", "y_out", "rstd_out", found=FLOAT16),
        *defects.late(
            *defects.shapes("x", (), alone=True),
            *defects.ranks("x"),
            *defects.shapes("gamma", ()),
            *defects.ranks("gamma"),
            *defects.shapes("gamma", (2, 3, 4)),
            *defects.shapes("gamma", (0,), (3,), (1, 4)),
            *defects.shapes("x", (0, 4)),
            *defects.shapes("y_out", (4, 3), (12,)),
            *defects.shapes("rstd_out", (3,), (3, 4), (1, 1)),
            *defects.values("epsilon", -1.0, NAN),
        ),
    ),
)  # fmt: skip

RMS_NORM_GRAD = Statement(
    "aclnnRmsNormGrad",
    prototype=(
        "const aclTensor* dy, const aclTensor* x, const aclTensor* rstd, const aclTensor* gamma, "
        "const aclTensor* dxOut, const aclTensor* dgammaOut"
    ),
    takes=TAKES,
    legacy=(),
    inputs=(In("dy", normal()), In("x", normal(2.0)), In("rstd", deviations, dtypes=(FLOAT,)),
            GAMMA),
    outputs=(
        Out("dx_out", "x", "x"),
        Out("dgamma_out", "gamma", lambda _: FLOAT, own=True),
    ),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=shapes,
    kernel=dtype_of("x"),
    mixed=MIXED,
    npu="torch_npu calls it in the gradient of npu_rms_norm, which gives its own rstd",
    **SHAPES,
    edges=(Setup("rows", (4, 4), values={
        **ROWS, "dy": [[1.0, 2, 3, 4], [1, 1, 1, 1], [0, 1, 0, 0], [300, -300, 1, 0]]}),),
    empty=(Setup("no-rows", (0, 4), products=("Ascend950",)),),
    invalid=(
        *defects.nulls("dy", "x", "rstd", "gamma", "dx_out", "dgamma_out"),
        *defects.dtypes("dy", found=INT32),
        *defects.dtypes("dy", found=BF16, products=("Ascend310P",)),
        *defects.dtypes("x", "rstd", found=DOUBLE),
        NO_MIX,
        *defects.dtypes("gamma", "dx_out", "dgamma_out", found=FLOAT16),
        *defects.late(
            *defects.shapes("x", (), alone=True),
            *defects.ranks("x"),
            *defects.shapes("gamma", ()),
            *defects.ranks("gamma"),
            *defects.shapes("gamma", (2, 3, 4)),
            *defects.shapes("dy", (4, 3), (12,)),
            *defects.shapes("dx_out", (4, 3), (12,)),
            Invalid("no-elements", {n: {"shape": (3, 0)} for n in ("dy", "x", "dx_out")}, ("dy",),
                    ShapeError),
            Invalid("no-rows", {n: {"shape": (0, 4)} for n in ("dy", "x", "dx_out")}, ("x",),
                    ShapeError, products=BUT_950),
            *defects.shapes("rstd", (1, 3), (4,), (3, 2), ()),
            *defects.shapes("gamma", (3,)),
            *defects.shapes("dgamma_out", (3,), (1, 4)),
        ),
    ),
)  # fmt: skip
