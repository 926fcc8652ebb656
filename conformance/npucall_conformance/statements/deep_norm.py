"""aclnnDeepNorm and aclnnDeepNormGrad [src:deep-norm]: layer norms of ``alpha * x + gx``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, INT32
from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import add_layer_norm as add
from npucall_conformance.statements import rms_norm as rms
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement

NAN, INF = reals.NAN, reals.INFINITY
STATISTICS = ("mean_out", "rstd_out")
OUTPUTS = ("dx_out", "dgx_out", "dbeta_out", "dgamma_out")
ROWS = {
    "x": [[0.0, 0, 0, 0], [1, NAN, 2, 3], [INF, 1, 2, 3], [1e4, -1e4, 0, 1]],
    "gx": [[0.0, 0, 0, 0], [1, 0, -2, 3], [0, -1, 2, 0], [1, 2, 3, 4]],
}


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"x": base, "gx": base, "beta": rms.tail(base), "gamma": rms.tail(base)}


def grad_shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    one = rms.shapes(base, given)["rstd"]
    return {**dict.fromkeys(("dy", "x", "gx"), base), "gamma": rms.tail(base), "mean": one,
            "rstd": one}  # fmt: skip


def as_add(k: Arguments) -> Arguments:
    """The call of AddLayerNorm, or of its gradient, that says the same."""
    own = {"x1": k["alpha"] * k["x"], "x2": k["gx"], "bias": None, "dsum": None,
           "additional_output": False}  # fmt: skip
    return replace(k, values={**k.values, **own}, product="")


def ones(k: Arguments) -> Shape:
    return add.ones(as_add(k))


def in_order(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in (*STATISTICS, "y_out")}


def in_grad_order(found: Mapping[str, Any], dx: Any) -> dict[str, Any]:
    """The gradient of the sum is that of gx."""
    return {"dx_out": dx, "dgx_out": found["dx_out"],
            **{name: found[name] for name in OUTPUTS[2:]}}  # fmt: skip


def loops(k: Arguments) -> dict[str, Any]:
    return in_order(add.loops(as_add(k)))


def arrays(k: Arguments) -> dict[str, Terms]:
    return in_order(add.arrays(as_add(k)))


def grad_loops(k: Arguments) -> dict[str, Any]:
    found = add.grad_loops(as_add(k))
    return in_grad_order(found, found["dx_out"] * k["alpha"])


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    found = add.grad_arrays(as_add(k))
    own = found["dx_out"]
    dx = Terms(k["alpha"] * own.value, abs(k["alpha"]) * own.sizes)
    return in_grad_order(found, dx)


def torch_says(k: Arguments, torch: Any) -> Any:
    s = k["alpha"] * k["x"] + k["gx"]
    found = torch.nn.functional.layer_norm(s, k["gamma"].shape, k["gamma"], k["beta"], k["epsilon"])
    return {"y_out": found}


def torch_gradient(k: Arguments, torch: Any) -> Any:
    found = add.torch_gradient(as_add(k), torch)
    return in_grad_order(found, found["dx_out"] * k["alpha"])


def of_rows(draw: Draw) -> Any:
    s = draw["alpha"] * draw["x"] + draw["gx"]
    return s.reshape(int(np.prod(draw.shape)), -1)


def means(draw: Draw) -> Any:
    return of_rows(draw).mean(-1).reshape(draw.shape)


def deviations(draw: Draw) -> Any:
    return (1 / np.sqrt(of_rows(draw).var(-1) + 0.01)).reshape(draw.shape)


COMMON: dict[str, Any] = {
    "takes": rms.TAKES,
    "legacy": (),
    "kernel": dtype_of("x"),
    "npu": "torch_npu has npu_deep_norm and its gradient, where the suite does not look",
    **rms.SHAPES,
    "rank_shapes": rms.SHAPES["rank_shapes"][1:],
}


def of(row: str, shape: Shape, *names: str, **more: Any) -> Invalid:
    """A shape of several tensors, for which the first is to blame."""
    changes = {name: {"shape": shape} for name in names}
    return Invalid(row, changes, names[:1], ShapeError, **more)


DEEP_NORM = Statement(
    "aclnnDeepNorm",
    (In("x", normal(2.0)), In("gx", normal(2.0, 0.5)), In("beta", normal()),
     In("gamma", uniform(0.5, 2.0))),
    (
        *(Out(name, ones, lambda _: FLOAT, own=True) for name in STATISTICS),
        Out("y_out", "x", "x"),
    ),
    prototype="const aclTensor* x, const aclTensor* gx, const aclTensor* beta, "
    "const aclTensor* gamma, double alpha, double epsilon, const aclTensor* meanOut, "
    "const aclTensor* rstdOut, const aclTensor* yOut",
    defaults={"alpha": 0.3, "epsilon": 1e-6},
    attributes={"alpha": (0.3, 2.0), "epsilon": (1e-5, 0.25)},
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    torch=torch_says,
    edges=(Setup("rows", (4, 4), values=ROWS),),
    invalid=(
        *defects.nulls("x", "gx", "beta", "gamma", *STATISTICS, "y_out"),
        *defects.dtypes("x", found=INT32),
        *defects.dtypes("x", found=BF16, products=("Ascend310P",)),
        *defects.dtypes("gx", found=DOUBLE),
        *defects.dtypes("beta", "gamma", *STATISTICS, "y_out", found=FLOAT16),
        *defects.late(
            *defects.shapes("x", (4,)),
            *defects.ranks("x"),
            *defects.shapes("gamma", ()),
            *defects.ranks("gamma"),
            *defects.shapes("gamma", (3, 4)),
            *defects.shapes("x", (0, 4)),
            *defects.shapes("gx", (4, 3), (12,)),
            *defects.shapes("gamma", (3,)),
            *defects.shapes("beta", (3,), (1, 4)),
            *defects.shapes("mean_out", (3,), (3, 4)),
            *defects.shapes("rstd_out", (3,), (1, 1)),
            *defects.shapes("y_out", (4, 3), (12,)),
        ),
    ),
    **COMMON,
)  # fmt: skip

DEEP_NORM_GRAD = Statement(
    "aclnnDeepNormGrad",
    (In("dy", normal()), In("x", normal(2.0)), In("gx", normal(2.0)),
     In("gamma", uniform(0.5, 2.0)), In("mean", means, dtypes=(FLOAT,)),
     In("rstd", deviations, dtypes=(FLOAT,))),
    (
        *(Out(name, "x", "x") for name in OUTPUTS[:2]),
        *(Out(name, "gamma", lambda _: FLOAT, own=True) for name in OUTPUTS[2:]),
    ),
    prototype="const aclTensor* dy, const aclTensor* x, const aclTensor* gx, "
    "const aclTensor* gamma, const aclTensor* mean, const aclTensor* rstd, double alpha, "
    "const aclTensor* dxOut, const aclTensor* dgxOut, const aclTensor* dbetaOut, "
    "const aclTensor* dgammaOut",
    defaults={"alpha": 0.3},
    attributes={"alpha": (0.3, 2.0)},
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    torch=torch_gradient,
    edges=(Setup("rows", (4, 4), values={
        **ROWS, "dy": [[1.0, 2, 3, 4], [1, 1, 1, 1], [0, 1, 0, 0], [300, -300, 1, 0]]}),),
    invalid=(
        *defects.nulls("dy", "x", "gx", "gamma", "mean", "rstd", *OUTPUTS),
        *defects.dtypes("dy", found=INT32),
        *defects.dtypes("dy", found=BF16, products=("Ascend310P",)),
        *defects.dtypes("x", "gx", "gamma", "mean", "rstd", *OUTPUTS, found=FLOAT16),
        *defects.late(
            *defects.shapes("dy", (4,)),
            *defects.ranks("dy"),
            *defects.shapes("gamma", ()),
            *defects.ranks("gamma"),
            *defects.shapes("gx", (4,)),
            *defects.shapes("rstd", (3,)),
            *defects.shapes("dgamma_out", (1, 4)),
            of("gamma-of-two-dimensions", (3, 4), "gamma", "dgamma_out", "dbeta_out"),
            *defects.shapes("dy", (0, 4)),
            *defects.shapes("x", (4, 3)),
            *defects.shapes("gx", (4, 3)),
            *defects.shapes("dx_out", (4, 3)),
            *defects.shapes("dgx_out", (4, 3)),
            *defects.shapes("mean", (3, 4), (1, 1)),
            *defects.shapes("rstd", (3, 4), (1, 1)),
            *defects.shapes("gamma", (3,)),
            *defects.shapes("dgamma_out", (3,)),
            *defects.shapes("dbeta_out", (3,)),
        ),
    ),
    **COMMON,
)  # fmt: skip
