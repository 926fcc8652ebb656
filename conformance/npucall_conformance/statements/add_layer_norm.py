"""aclnnAddLayerNorm and aclnnAddLayerNormGrad [src:add-layer-norm]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, INT32, DType
from npucall.errors import DTypeError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _layer_norm as norm
from npucall_conformance.statements import rms_norm as rms
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal, uniform
from npucall_conformance.stating.parts import Attributes, DTypes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
NEWER = tuple(FLOATS_WITH_BFLOAT16)
GAMMA = In("gamma", uniform(0.5, 2.0), own=True)
OUTPUTS = ("dx_out", "dgamma_out", "dbeta_out")


def shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    of_row = rms.tail(base)
    return {"x1": base, "x2": base, **dict.fromkeys(("gamma", "beta", "bias"), of_row)}


def grad_shapes(base: Shape, given: Attributes) -> dict[str, Shape]:
    of_all = dict.fromkeys(("dy", "x1", "x2", "dsum"), base)
    one = rms.shapes(base, given)["rstd"]
    return {**of_all, "rstd": one, "mean": one, "gamma": rms.tail(base)}


def ones(k: Arguments) -> Shape:
    lead = k["x1"].ndim - k["gamma"].ndim
    return tuple(k["x1"].shape[:lead]) + (1,) * k["gamma"].ndim


def of_sum(dtypes: DTypes) -> DType:
    return FLOAT if dtypes["x1"] is not dtypes["x2"] else dtypes["x1"]


def sums(k: Arguments) -> tuple[Any, Any]:
    """The rows that are normalised, and the sizes of their addends."""
    parts = [k[n] for n in ("x1", "x2", "bias") if k.values.get(n) is not None]
    rows = (-1, k["gamma"].size)
    return sum(parts).reshape(rows), sum(np.abs(part) for part in parts).reshape(rows)


def written(k: Arguments, found: dict[str, Any]) -> dict[str, Any]:
    """Without what the device does not write."""
    left: tuple[str, ...] = () if k["additional_output"] else ("x_out",)
    left += ("mean_out", "rstd_out") if k.product == "Ascend310P" else ()
    empty = {name: np.zeros(ones(k) if name != "x_out" else k["x1"].shape) for name in left}
    return {**found, **empty}


def loops(k: Arguments) -> dict[str, Any]:
    w, b = (k[name].reshape(-1).tolist() for name in ("gamma", "beta"))
    rows, found = sums(k)[0], []
    statistics: list[tuple[float, float]] = []
    for row in rows.tolist():
        mean, rstd = norm.moments(row, k["epsilon"])
        found += [(x - mean) * rstd * c + a for x, c, a in zip(row, w, b, strict=True)]
        statistics.append((mean, rstd))
    means, rstds = (np.reshape(each, ones(k)) for each in zip(*statistics, strict=True))
    shape = k["x1"].shape
    return written(k, {"y_out": np.reshape(found, shape), "mean_out": means, "rstd_out": rstds,
                       "x_out": rows.reshape(shape)})  # fmt: skip


def arrays(k: Arguments) -> dict[str, Terms]:
    x, size = sums(k)
    mean = x.mean(1, keepdims=True)
    rstd = (((x - mean) ** 2).mean(1, keepdims=True) + k["epsilon"]) ** -0.5
    w, b = k["gamma"].reshape(-1), k["beta"].reshape(-1)
    around = size.mean(1, keepdims=True)
    wide = 1 + (size**2).mean(1, keepdims=True) * rstd**2
    sizes = np.abs(w) * (size + around) * rstd * wide + np.abs(b)
    shape, one = k["x1"].shape, ones(k)
    found = {
        "y_out": Terms(((x - mean) * rstd * w + b).reshape(shape), sizes.reshape(shape)),
        "mean_out": Terms(mean.reshape(one), around.reshape(one), summed=x.shape[1]),
        "rstd_out": Terms(rstd.reshape(one), (rstd * wide).reshape(one)),
        "x_out": Terms(x.reshape(shape), size.reshape(shape)),
    }
    nothing = written(k, {})
    return {name: Terms(nothing[name]) if name in nothing else each for name, each in found.items()}


def torch_says(k: Arguments, torch: Any) -> Any:
    x = k["x1"] + k["x2"] + (0 if k["bias"] is None else k["bias"])
    found = torch.nn.functional.layer_norm(x, k["gamma"].shape, k["gamma"], k["beta"], k["epsilon"])
    return {"y_out": found}


def of_rows(draw: Draw) -> Any:
    x = draw["x1"] + draw["x2"]
    return x.reshape(math.prod(draw.shape), -1) if x.size else np.zeros((*draw.shape, 1))


def means(draw: Draw) -> Any:
    return of_rows(draw).mean(-1).reshape(draw.shape)


def deviations(draw: Draw) -> Any:
    return (1 / np.sqrt(of_rows(draw).var(-1) + 0.01)).reshape(draw.shape)


def grad_parts(k: Arguments) -> tuple[Any, ...]:
    """The upstream rows, normal forms and what cancels in them, rstd, and gamma as a row."""
    x, size = sums(k)
    mean, rstd = (k[name].reshape(-1, 1) for name in ("mean", "rstd"))
    form, cancelled = (x - mean) * rstd, (size + np.abs(mean)) * np.abs(rstd)
    return k["dy"].reshape(x.shape), form, cancelled, rstd, k["gamma"].reshape(-1)


def grad_loops(k: Arguments) -> dict[str, Any]:
    g, form, _, rstd, w = grad_parts(k)
    rows = zip(g.tolist(), form.tolist(), rstd[:, 0].tolist(), strict=True)
    found = [norm.row_gradient(up, w.tolist(), n, r) for up, n, r in rows]
    dx = np.reshape(found, k["dy"].shape) + (0 if k["dsum"] is None else k["dsum"])
    pairs = [list(zip(a, b, strict=True)) for a, b in zip(g.T.tolist(), form.T.tolist(),
                                                          strict=True)]  # fmt: skip
    dgamma = [reals.total([a * n for a, n in column]) for column in pairs]
    dbeta = [reals.total([a for a, _ in column]) for column in pairs]
    tail = k["gamma"].shape
    return dict(zip(OUTPUTS, (dx, np.reshape(dgamma, tail), np.reshape(dbeta, tail)), strict=True))


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    g, form, size, rstd, w = grad_parts(k)
    d, count = g * w, g.shape[1]

    def mean(numbers: Any) -> Any:
        return numbers.sum(1, keepdims=True) / count

    more = np.zeros(g.shape) if k["dsum"] is None else k["dsum"].reshape(g.shape)
    value = rstd * (d - mean(d) - form * mean(d * form)) + more
    sizes = np.abs(rstd) * (np.abs(d) + mean(np.abs(d)) + mean(np.abs(d) * size) * size)
    sizes = sizes + np.abs(more)
    shape, tail = k["dy"].shape, k["gamma"].shape
    return {
        "dx_out": Terms(value.reshape(shape), sizes.reshape(shape)),
        "dgamma_out": Terms((g * form).sum(0).reshape(tail),
                            (size * np.abs(g)).sum(0).reshape(tail), summed=len(g)),
        "dbeta_out": Terms(g.sum(0).reshape(tail), np.abs(g).sum(0).reshape(tail), summed=len(g)),
    }  # fmt: skip


def torch_gradient(k: Arguments, torch: Any) -> Any:
    found = torch.ops.aten.native_layer_norm_backward(
        k["dy"], k["x1"] + k["x2"], list(k["gamma"].shape), k["mean"], k["rstd"], k["gamma"],
        k["gamma"], [True] * 3,
    )  # fmt: skip
    dx = found[0] + (0 if k["dsum"] is None else k["dsum"])
    return dict(zip(OUTPUTS, (dx, *found[1:]), strict=True))


def no_mix(name: str, *alike: str) -> Invalid:
    """A short float beside others of another dtype, where no row has that."""
    return Invalid(f"{name}-float-of-310p", {name: {"dtype": FLOAT}}, (name,), DTypeError,
                   base=Setup(dtypes=dict.fromkeys(alike, FLOAT16)),
                   products=("Ascend310P",))  # fmt: skip


ROWS = {
    "x1": [[0.0, 0, 0, 0], [1, NAN, 2, 3], [INF, 1, 2, 3], [1e4, -1e4, 0, 1]],
    "x2": [[0.0, 0, 0, 0], [1, 0, -2, 3], [0, -1, 2, 0], [1, 2, 3, 4]],
}
ALL = ("x1", "x2", "gamma", "beta", "bias")

ADD_LAYER_NORM = Statement(
    "aclnnAddLayerNorm",
    (In("x1", normal(2.0)), In("x2", normal(2.0, 0.5)), GAMMA, In("beta", normal(), own=True),
     In("bias", normal(), optional=True)),
    (
        Out("y_out", "x1", of_sum),
        Out("mean_out", ones, lambda _: FLOAT, own=True),
        Out("rstd_out", ones, lambda _: FLOAT, own=True),
        Out("x_out", "x1", of_sum),
    ),
    prototype="const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma, "
    "const aclTensor* beta, const aclTensor* biasOptional, double epsilon, "
    "bool additionalOutput, const aclTensor* yOut, const aclTensor* meanOut, "
    "const aclTensor* rstdOut, const aclTensor* xOut",
    takes=rms.TAKES,
    legacy=(),
    defaults={"epsilon": 1e-5, "additional_output": False},
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=of_sum,
    npu="torch_npu calls it in npu_add_layer_norm, where the suite does not look",
    torch=torch_says,
    **rms.SHAPES,
    attributes={"epsilon": (1e-5, 0.25), "additional_output": (True, False)},
    faint=lambda k: tuple(written(k, {})),
    mixed=(
        Setup(dtypes={"gamma": FLOAT, "beta": FLOAT}, only=(FLOAT16, BF16), products=NEWER),
        *(Setup(dtypes={name: FLOAT, "gamma": FLOAT, "beta": FLOAT, "bias": FLOAT},
                only=(FLOAT16, BF16), products=NEWER) for name in ("x1", "x2")),
    ),
    edges=(
        Setup("rows", (4, 4), values=ROWS),
        Setup("a-bias-each", shapes={"x1": (3, 4), "x2": (3, 4), "gamma": (4,), "beta": (4,),
                                     "bias": (3, 4)}),
    ),
    invalid=(
        *defects.nulls("x1", "x2", "gamma", "beta", "y_out", "mean_out", "rstd_out", "x_out"),
        *defects.dtypes("x1", found=INT32),
        *defects.dtypes("x1", found=BF16, products=("Ascend310P",)),
        no_mix("gamma", *ALL),
        *defects.dtypes("x2", found=DOUBLE),
        *defects.dtypes("gamma", "beta", "bias", "y_out", "mean_out", "rstd_out", "x_out",
                        found=FLOAT16),
        *defects.late(
            *defects.shapes("x1", (), alone=True),
            *defects.ranks("x1"),
            *defects.shapes("gamma", ()),
            *defects.ranks("gamma"),
            *defects.shapes("x2", (4,)),
            *defects.shapes("mean_out", (3,)),
            *defects.shapes("gamma", (2, 3, 4)),
            *defects.shapes("x2", (4, 3)),
            *defects.shapes("y_out", (4, 3)),
            *defects.shapes("x_out", (4, 3)),
            *defects.shapes("beta", (3,), (1, 4)),
            *defects.shapes("rstd_out", (3, 4), (1, 1)),
            Invalid("gamma-of-three", {n: {"shape": (3,)} for n in ("gamma", "beta")}, ("gamma",),
                    ShapeError),
            Invalid("statistics-of-all", {n: {"shape": (3, 4)} for n in ("mean_out", "rstd_out")},
                    ("mean_out",), ShapeError),
            Invalid("no-rows", {**{n: {"shape": (0, 4)} for n in ("x1", "x2", "y_out", "x_out")},
                                **{n: {"shape": (0, 1)} for n in ("mean_out", "rstd_out")}},
                    ("x1",), ShapeError),
            *defects.shapes("bias", (3,), (1, 4), (12,)),
        ),
    ),
)  # fmt: skip

ADD_LAYER_NORM_GRAD = Statement(
    "aclnnAddLayerNormGrad",
    (In("dy", normal()), In("x1", normal(2.0)), In("x2", normal(2.0)),
     In("rstd", deviations, dtypes=(FLOAT,)), In("mean", means, dtypes=(FLOAT,)),
     In("gamma", uniform(0.5, 2.0)), In("dsum", normal(), optional=True)),
    (
        Out("dx_out", "x1", "x1"),
        Out("dgamma_out", "gamma", lambda _: FLOAT, own=True),
        Out("dbeta_out", "gamma", lambda _: FLOAT, own=True),
    ),
    prototype="const aclTensor* dy, const aclTensor* x1, const aclTensor* x2, "
    "const aclTensor* rstd, const aclTensor* mean, const aclTensor* gamma, "
    "const aclTensor* dsumOptional, const aclTensor* dxOut, const aclTensor* dgammaOut, "
    "const aclTensor* dbetaOut",
    takes=rms.TAKES,
    legacy=(),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("x1"),
    npu="torch_npu has no function that calls it",
    torch=torch_gradient,
    **rms.SHAPES,
    edges=(Setup("rows", (4, 4), values={
        **ROWS, "dy": [[1.0, 2, 3, 4], [1, 1, 1, 1], [0, 1, 0, 0], [300, -300, 1, 0]]}),),
    invalid=(
        *defects.nulls("dy", "x1", "x2", "rstd", "mean", "gamma", *OUTPUTS),
        *defects.dtypes("dy", found=INT32),
        *defects.dtypes("dy", found=BF16, products=("Ascend310P",)),
        *defects.dtypes("x1", "x2", "rstd", "mean", "gamma", "dsum", *OUTPUTS, found=FLOAT16),
        *defects.late(
            *defects.shapes("x1", (), alone=True),
            *defects.ranks("x1"),
            *defects.shapes("gamma", ()),
            *defects.ranks("gamma"),
            *defects.shapes("rstd", (3,)),
            *defects.shapes("mean", (3,)),
            *defects.shapes("dgamma_out", (1, 4)),
            *defects.shapes("dbeta_out", (1, 4)),
            Invalid("gamma-of-three-dimensions",
                    {n: {"shape": (2, 3, 4)} for n in ("gamma", *OUTPUTS[1:])}, ("gamma",),
                    ShapeError),
            *defects.shapes("x1", (0, 4)),
            *defects.shapes("mean", (0, 1)),
            *defects.shapes("dy", (4, 3)),
            *defects.shapes("x2", (4, 3), (12,)),
            *defects.shapes("dsum", (4, 3), (12,)),
            *defects.shapes("dx_out", (4, 3), (12,)),
            *defects.shapes("rstd", (3, 4), (1, 1)),
            *defects.shapes("gamma", (3,)),
            Invalid("statistics-of-all", {n: {"shape": (3, 4)} for n in ("mean", "rstd")},
                    ("mean",), ShapeError),
            *defects.shapes("dgamma_out", (3,)),
            *defects.shapes("dbeta_out", (3,)),
        ),
    ),
)  # fmt: skip
