"""The gradient of batch normalisation over several processes [src:sync-batch-norm]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32
from npucall.errors import FormatError
from npucall.tensors import Format, Shape
from npucall_conformance.statements.batch_norm import back, channels, count
from npucall_conformance.statements.sync_batch_norm import (
    COMMON,
    EMPTY,
    NO_TORCH,
    OWN,
    PRIVATE,
    counted,
    given,
    no_channels,
    of_channel,
    private,
    wrong_channels,
)
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement

SUMS = ("sum_dy", "sum_dy_xmu", "grad_weight", "grad_bias")
NAN, INF = reals.NAN, reals.INFINITY


def sums_shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"grad_out": base, "input": base, **of_channel(base, "mean", "invstd", "weight")}


def sums_loops(k: Arguments) -> dict[str, Any]:
    found: dict[str, list[float]] = {name: [] for name in SUMS}
    tensors = [channels(k, name).tolist() for name in ("grad_out", "input")]
    numbers = [k[name].tolist() for name in ("mean", "invstd")]
    for g, x, mean, invstd in zip(*tensors, *numbers, strict=True):
        found[SUMS[0]].append(reals.total(g))
        found[SUMS[1]].append(reals.total([a * (v - mean) for a, v in zip(g, x, strict=True)]))
        found[SUMS[2]].append(invstd * found[SUMS[1]][-1])
    return {**found, SUMS[3]: found[SUMS[0]]}


def sums_arrays(k: Arguments) -> dict[str, Terms]:
    g, x = channels(k, "grad_out"), channels(k, "input")
    mean, length = k["mean"][:, None], max(g.shape[1], 1)
    product, size = (g * (x - mean)).sum(1), (np.abs(g) * (np.abs(x) + np.abs(mean))).sum(1)
    total = Terms(g.sum(1), np.abs(g).sum(1), summed=length)
    return {
        SUMS[0]: total,
        SUMS[1]: Terms(product, size, summed=length),
        SUMS[2]: Terms(product * k["invstd"], size * np.abs(k["invstd"]), summed=length),
        SUMS[3]: total,
    }


def sums_torch(k: Arguments, torch: Any) -> Any:
    if not k["input"].numel():
        return None
    weight, bias = (torch.ones_like(k["mean"]).requires_grad_() for _ in range(2))
    normal_form = torch.nn.functional.batch_norm(
        k["input"], k["mean"], k["invstd"] ** -2, weight, bias, eps=0.0
    )
    of_weight, of_bias = torch.autograd.grad(normal_form, (weight, bias), k["grad_out"])
    return {SUMS[0]: of_bias, SUMS[2]: of_weight, SUMS[3]: of_bias}


def switched(name: str) -> Any:
    return lambda k: bool(k[name])


SWITCHES = ("input_g", "input_g", "weight_g", "bias_g")
BATCH_NORM_REDUCE_BACKWARD = Statement(
    "aclnnBatchNormReduceBackward",
    prototype=(
        "const aclTensor* gradOut, const aclTensor* input, const aclTensor* mean, "
        "const aclTensor* invstd, const aclTensor* weight, const bool inputG, "
        "const bool weightG, const bool biasG, aclTensor* sumDy, aclTensor* sumDyXmu, "
        "aclTensor* gradWeight, aclTensor* gradBias"
    ),
    inputs=(
        In("grad_out", normal()),
        In("input", normal(2.0, 0.5)),
        In("mean", normal(), **OWN),
        In("invstd", uniform(0.5, 1.5), **OWN),
        In("weight", normal(), **OWN, optional=True, read=False),
    ),
    outputs=tuple(Out(name, count, "input", own=True, asked=switched(switch))
                  for name, switch in zip(SUMS, SWITCHES, strict=True)),
    loops=sums_loops,
    arrays=sums_arrays,
    shapes=sums_shapes,
    npu=NO_TORCH,
    torch=sums_torch,
    defaults=dict.fromkeys(("input_g", "weight_g", "bias_g"), True),
    attributes={"input_g": (True, False), "weight_g": (True,), "bias_g": (True, False)},
    **COMMON | {"kernel": dtype_of("input")},
    empty_shapes=EMPTY,
    mixed=(
        *(Setup(dtypes=dict.fromkeys(("mean", "invstd"), d)) for d in FLOATS[1:]),
        Setup(dtypes=dict.fromkeys(SUMS, FLOAT16)),
    ),
    edges=(Setup("channels", (3, 4), values={
        "input": [[0.0, NAN, INF, 1e4], [0, 1, 1, -1e4], [0, 2, 0, 1]],
        "grad_out": [[1.0, 1, 1, 300], [2, 0, 1, -300], [3, 1, INF, 1]]}),),
    invalid=(
        *defects.nulls("grad_out", "input", "mean", "invstd", *SUMS),
        *defects.dtypes("grad_out", "input", "mean", "invstd"),
        *defects.no_bfloat16("grad_out", "mean"),
        *defects.dtypes("input", found=FLOAT16),
        *defects.dtypes(*SUMS),
        *defects.formats("input", found=Format.NHWC),
        private("grad_out", "input"),
        *(Invalid(f"private-{name}", {name: PRIVATE}, (name,), FormatError)
          for name in ("mean", "invstd", *SUMS)),
        *defects.shapes("input", (4,)),
        no_channels("input", "grad_out"),
        *defects.shapes("grad_out", (4, 6)),
        *wrong_channels("mean", "invstd", *SUMS),
    ),
)  # fmt: skip

GRAD_NAMES = ("mean", "invstd", "weight", "sum_dy", "sum_dy_xmu")


def grad_shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"grad_out": base, "input": base, **of_channel(base, *GRAD_NAMES), "counter": (2,)}


def grad_loops(k: Arguments) -> Any:
    n = float(k["counter"].sum())
    numbers = [given(k, name, 1).tolist() for name in GRAD_NAMES]
    pairs = zip(channels(k, "grad_out").tolist(), channels(k, "input").tolist(), *numbers,
                strict=True)  # fmt: skip
    found = [
        [w * invstd * (a - reals.divide(total, n)
                       - (v - mean) * invstd * invstd * reals.divide(product, n))
         for a, v in zip(g, x, strict=True)]
        for g, x, mean, invstd, w, total, product in pairs
    ]  # fmt: skip
    return back(k, found)


def grad_arrays(k: Arguments) -> Terms:
    g, x, n = channels(k, "grad_out"), channels(k, "input"), k["counter"].sum()
    mean, invstd, w, total, product = (given(k, name, 1)[:, None] for name in GRAD_NAMES)
    form, size = (x - mean) * invstd**2, (np.abs(x) + np.abs(mean)) * invstd**2
    value = w * invstd * (g - total / n - form * product / n)
    wide = np.abs(w * invstd) * (np.abs(g) + np.abs(total / n) + size * np.abs(product / n))
    return Terms(back(k, value), back(k, wide))


def grad_torch(k: Arguments, torch: Any) -> Any:
    del torch
    if not k["input"].numel():
        return None
    shape = (-1, *(1,) * (k["input"].dim() - 2))
    mean, invstd, total, product = (k[name].reshape(shape) for name in
                                    ("mean", "invstd", "sum_dy", "sum_dy_xmu"))  # fmt: skip
    w = 1.0 if k["weight"] is None else k["weight"].reshape(shape)
    n = k["counter"].sum()
    normal_form = (k["input"] - mean) * invstd
    return (k["grad_out"] - (total + normal_form * invstd * product) / n) * (invstd * w)


BATCH_NORM_ELEMT_BACKWARD = Statement(
    "aclnnBatchNormElemtBackward",
    prototype=(
        "const aclTensor* gradOut, const aclTensor* input, const aclTensor* mean, "
        "const aclTensor* invstd, const aclTensor* weight, const aclTensor* sumDy, "
        "const aclTensor* sumDyXmu, aclTensor* counter, aclTensor* gradInput"
    ),
    inputs=(
        In("grad_out", normal()),
        In("input", normal(2.0, 0.5)),
        In("mean", normal(), **OWN),
        In("invstd", uniform(0.5, 1.5), **OWN),
        In("weight", uniform(0.5, 2.0), **OWN, optional=True),
        In("sum_dy", normal(3.0), **OWN),
        In("sum_dy_xmu", normal(3.0), **OWN),
        In("counter", counted, dtypes=(INT32,)),
    ),
    outputs=(Out("grad_input", "input", "input"),),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    npu=NO_TORCH,
    torch=grad_torch,
    **COMMON,
    empty_shapes=EMPTY,
    mixed=(
        *(Setup(dtypes=dict.fromkeys(GRAD_NAMES, d)) for d in FLOATS[1:]),
        *(Setup(dtypes={"counter": d}) for d in (FLOAT, FLOAT16)),
        Setup(dtypes={"grad_out": FLOAT16, "grad_input": FLOAT16}),
    ),
    edges=(Setup("channels", (3, 4), values={
        "input": [[0.0, NAN, INF, 1e4], [0, 1, 1, -1e4], [0, 2, 0, 1]],
        "grad_out": [[1.0, 1, 1, 300], [2, 0, 1, -300], [3, 1, INF, 1]]}),),
    invalid=(
        *defects.nulls("grad_out", "input", "mean", "invstd", "sum_dy", "sum_dy_xmu", "counter",
                       "grad_input"),
        *defects.dtypes("grad_out", "input", "mean", "invstd", "weight", "sum_dy", "sum_dy_xmu"),
        *defects.no_bfloat16("grad_out", "mean"),
        *defects.dtypes("counter", found=DOUBLE),
        *defects.dtypes("grad_input"),
        *(Invalid(f"private-{name}", {name: PRIVATE}, (name,), FormatError)
          for name in ("grad_out", "input", "grad_input")),
        *defects.shapes("input", (4,)),
        *defects.shapes("counter", (1,) * 9),
        no_channels("input", "grad_out", "grad_input"),
        *defects.shapes("grad_out", (4, 6)),
        *defects.shapes("grad_input", (4, 6)),
        *wrong_channels(*GRAD_NAMES),
    ),
)  # fmt: skip
