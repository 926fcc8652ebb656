"""aclnnGroupNormSwish and aclnnGroupNormSwishGrad [src:group-norm-swish]."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT, FLOAT16, FLOATS, INT32
from npucall.errors import AttributeValueError, NpucallError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import group_norm
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on

NAN, INF = reals.NAN, reals.INFINITY
STATISTICS = ("mean_out", "rstd_out")
OUTPUTS = ("dx_out", "dgamma_out", "dbeta_out")
C_NAMES = "int64_t numGroups, char* dataFormatOptional"
COMMON: dict[str, Any] = {
    **{name: value for name, value in group_norm.COMMON.items()
       if name not in ("attributes", "renamed", "empty_shapes")},
    "takes": on(("Ascend910B", "Ascend910_93", "Ascend950"), *FLOATS),
    "kernel": dtype_of("x"),
    "empty_shapes": (),
    "npu": "torch has no function that ends in it",
}  # fmt: skip
GROUPS = (lambda base: 1 if base[1] % 2 else 2, 1)
SMALL = {"num_groups": GROUPS, "swish_scale": (1.0,)}


def as_group_norm(k: Arguments) -> Arguments:
    """The call of GroupNorm, or of its gradient, that is within."""
    shape = k["x"].shape
    extents = {"n": shape[0], "c": shape[1], "hxw": math.prod(shape[2:])}
    values = {**k.values, **extents, "group": k["num_groups"], "self": k["x"], "input": k["x"]}
    return replace(k, values=values)


def count(k: Arguments) -> Shape:
    return k["x"].shape[0], k["num_groups"]


def channels(k: Arguments) -> Shape:
    return tuple(k["x"].shape[1:2])


def sigmoid(x: float) -> float:
    return reals.divide(1.0, 1 + reals.exp(-x))


def loops(k: Arguments) -> dict[str, Any]:
    found = group_norm.loops(as_group_norm(k))
    y = np.array(found.pop("out"))
    if k["activate_swish"]:
        scaled = [x * sigmoid(k["swish_scale"] * x) if x != -INF else 0.0 * x for x in y.flat]
        y = np.reshape(scaled, y.shape)
    return {"y_out": y, **found}


def arrays(k: Arguments) -> dict[str, Terms]:
    found = group_norm.arrays(as_group_norm(k))
    y = found.pop("out")
    if k["activate_swish"]:
        scaled = k["swish_scale"] * y.value
        opened = 1 / (1 + np.exp(-scaled))
        wide = opened * (1 + np.abs(scaled) * (1 - opened))
        y = Terms(y.value * opened, y.size * wide)
    return {"y_out": y, **found}


def torch_says(k: Arguments, torch: Any) -> Any:
    x, groups = k["x"], k["num_groups"]
    y, mean, rstd = torch.ops.aten.native_group_norm(
        x, k["gamma"], k["beta"], *x.shape[:2], math.prod(x.shape[2:]), groups, k["eps"]
    )
    if k["activate_swish"]:
        y = y * torch.sigmoid(k["swish_scale"] * y)
    return {"y_out": y, "mean_out": mean, "rstd_out": rstd}


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"x": base, "gamma": base[1:2], "beta": base[1:2]}


def mixed(*names: str) -> tuple[Setup, ...]:
    return tuple(Setup(dtypes=dict.fromkeys(names, FLOAT), only=(each,))
                 for each in (FLOAT16, BF16))  # fmt: skip


ATTRIBUTES_WRONG = (
    *defects.values("num_groups", 0, -1),
    Invalid("uneven-groups", {"num_groups": 3}, ("num_groups",), AttributeValueError),
)
GROUP_NORM_SWISH = Statement(
    "aclnnGroupNormSwish",
    prototype=(
        f"const aclTensor* x, const aclTensor* gamma, const aclTensor* beta, {C_NAMES}, "
        "double eps, bool activateSwish, double swishScale, const aclTensor* yOut, "
        "const aclTensor* meanOut, const aclTensor* rstdOut"
    ),
    defaults={"data_format": "NCHW", "eps": 1e-5, "activate_swish": True, "swish_scale": 1.0},
    attributes={"num_groups": GROUPS, "activate_swish": (True, False), "swish_scale": (1.0, -0.5)},
    inputs=(
        In("x", normal(2.0, 0.5)),
        In("gamma", uniform(0.5, 2.0), own=True),
        In("beta", normal(), own=True),
    ),
    outputs=(
        Out("y_out", "x", "x"),
        *(Out(name, count, dtype_of("gamma"), own=True) for name in STATISTICS),
    ),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    torch=torch_says,
    **COMMON,
    mixed=mixed("gamma", "beta"),
    edges=(
        Setup("groups", (2, 4, 2), values={"x": [
            [[0.0, 0], [0, 0], [1, NAN], [2, 3]], [[INF, 1], [2, 3], [1e4, -1e4], [0, 1]],
        ]}),
        Setup("each-channel", (2, 3, 4), attributes={"num_groups": 3}),
    ),
    invalid=(
        *defects.nulls("x", "gamma", "beta", "y_out", *STATISTICS),
        *defects.dtypes("x", found=INT32),
        *defects.dtypes("gamma", "beta", "y_out", *STATISTICS, found=FLOAT16),
        *defects.late(
            *defects.shapes("x", (24,), (1,) * 9),
            *defects.shapes("gamma", (2,), (1, 4)),
            *defects.shapes("beta", (2,), (1, 4)),
            *ATTRIBUTES_WRONG,
            *defects.shapes("x", (3, 4, 0)),
            *defects.shapes("y_out", (24,), (3, 2, 4)),
            *defects.shapes("mean_out", (6,), (2, 3)),
            *defects.shapes("rstd_out", (6,), (2, 3)),
        ),
    ),
)  # fmt: skip


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    one = (base[0], attributes["num_groups"])
    return {"dy": base, "x": base, "mean": one, "rstd": one, **dict.fromkeys(
        ("gamma", "beta"), base[1:2])}  # fmt: skip


def behind(k: Arguments) -> tuple[Arguments, Any]:
    """The call of GroupNormBackward behind swish, and the sizes of what it is given."""
    call = as_group_norm(k)
    form, size, _ = group_norm.normal_form(call)
    w, b = group_norm.weights(call, "gamma", 1), group_norm.weights(call, "beta", 0)
    y = (form * w + b).reshape(k["x"].shape)
    wide = (size * np.abs(w) + np.abs(b)).reshape(k["x"].shape)
    scale = k["swish_scale"]
    s = np.reshape([sigmoid(scale * each) for each in y.flat], y.shape)
    # 1 - s of a large number has no digits left: it is the other side's.
    rest = np.reshape([sigmoid(-scale * each) for each in y.flat], y.shape)
    grad = k["dy"] * s * (1 + scale * y * rest)
    sizes = np.abs(k["dy"]) * (1 + abs(scale) * wide) * (1 + np.abs(scale * y) * rest)
    return replace(call, values={**call.values, "grad_out": grad}), sizes


def required(k: Arguments, found: dict[str, Any], none: Any) -> dict[str, Any]:
    switches = (True, k["dgamma_is_require"], k["dbeta_is_require"])
    return {
        name: each if is_there else none(each)
        for name, each, is_there in zip(OUTPUTS, found.values(), switches, strict=True)
    }


def grad_loops(k: Arguments) -> dict[str, Any]:
    call, _ = behind(k)
    return required(k, group_norm.grad_loops(call), np.zeros_like)


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    call, sizes = behind(k)
    wide = replace(call, values={**call.values, "grad_out": sizes})
    found, about = group_norm.grad_arrays(call), group_norm.grad_arrays(wide)
    pairs = {name: Terms(found[name].value, about[name].size, summed=found[name].summed)
             for name in found}  # fmt: skip
    return required(k, pairs, lambda each: Terms(np.zeros_like(each.value)))


def grad_torch(k: Arguments, torch: Any) -> Any:
    of = {name: k[name].clone().requires_grad_() for name in ("gamma", "beta")}
    x = k["x"]
    n, c, *rest = x.shape
    apart = x.reshape(n, k["num_groups"], -1)
    form = ((apart - k["mean"][..., None]) * k["rstd"][..., None]).reshape(n, c, -1)
    y = form * of["gamma"][:, None] + of["beta"][:, None]
    upstream = k["dy"].reshape(n, c, -1)
    gradients = torch.autograd.grad(
        y * torch.sigmoid(k["swish_scale"] * y), tuple(of.values()), upstream
    )
    del rest
    switches = (k["dgamma_is_require"], k["dbeta_is_require"])
    return {name: each for name, each, there in zip(OUTPUTS[1:], gradients, switches, strict=True)
            if there}  # fmt: skip


def reshaped(row: str, shapes: dict[str, Shape], blamed: str, error: type[NpucallError]) -> Invalid:
    return Invalid(row, {name: {"shape": each} for name, each in shapes.items()}, (blamed,), error)


REQUIRED: dict[str, Any] = {"attributes": {"dgamma_is_require": True, "dbeta_is_require": True}}
GROUP_NORM_SWISH_GRAD = Statement(
    "aclnnGroupNormSwishGrad",
    prototype=(
        "const aclTensor* dy, const aclTensor* mean, const aclTensor* rstd, const aclTensor* x, "
        f"const aclTensor* gamma, const aclTensor* beta, {C_NAMES}, double swishScale, "
        "bool dgammaIsRequire, bool dbetaIsRequire, const aclTensor* dxOut, "
        "const aclTensor* dgammaOut, const aclTensor* dbetaOut"
    ),
    defaults={"data_format": "NCHW", "swish_scale": 1.0, "dgamma_is_require": True,
              "dbeta_is_require": True},
    attributes={"num_groups": GROUPS, "swish_scale": (1.0, -0.5),
                "dgamma_is_require": (True,), "dbeta_is_require": (True, False)},
    inputs=(
        In("dy", normal()),
        In("mean", normal(0.5)),
        In("rstd", uniform(0.5, 1.5)),
        In("x", normal(2.0)),
        In("gamma", uniform(0.5, 2.0)),
        In("beta", normal()),
    ),
    outputs=(
        Out(OUTPUTS[0], "x", "x"),
        *(Out(name, channels, "x") for name in OUTPUTS[1:]),
    ),
    loops=grad_loops,
    arrays=grad_arrays,
    faint=lambda k: () if k["dbeta_is_require"] else OUTPUTS[2:],
    shapes=grad_shapes,
    torch=grad_torch,
    **COMMON,
    edges=(Setup("each-channel", (2, 3, 4), attributes={"num_groups": 3}),),
    invalid=(
        *defects.nulls("dy", "mean", "rstd", "x", "gamma", "beta", *OUTPUTS),
        *defects.dtypes("dy", found=INT32),
        *defects.dtypes("mean", "rstd", "x", "gamma", "beta", *OUTPUTS, found=FLOAT16),
        *defects.late(
            *defects.shapes("dy", (24,), (1,) * 9),
            *defects.shapes("x", (3, 2, 4)),
            *defects.values("num_groups", 0, -1),
            *defects.shapes("mean", (6,), (2, 3)),
            *defects.shapes("rstd", (6,), (2, 3)),
            *defects.shapes("gamma", (2,), (1, 4)),
            *defects.shapes("beta", (2,), (1, 4)),
            Invalid("uneven-groups", {"num_groups": 3, "mean": {"shape": (3, 3)},
                    "rstd": {"shape": (3, 3)}}, ("num_groups",), AttributeValueError),
            reshaped("no-elements", {"dy": (3, 4, 0), "x": (3, 4, 0)}, "x", ShapeError),
            reshaped("long-groups", {"dy": (3, 8002, 1), "x": (3, 8002, 1), "gamma": (8002,),
                     "beta": (8002,)}, "num_groups", AttributeValueError),
            *defects.shapes("dx_out", (24,), (3, 2, 4)),
            *defects.shapes("dgamma_out", (2,), (1, 4)),
            *defects.shapes("dbeta_out", (2,), (1, 4)),
        ),
    ),
)  # fmt: skip
