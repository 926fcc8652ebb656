"""aclnnBatchNorm and aclnnBatchNormBackward [src:batch-norm]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, INT32
from npucall.errors import PARAM_NULLPTR, AttributeValueError, DTypeError, FormatError
from npucall.tensors import Format, Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup, masked
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import FLOATS_BUT_ON_310B, FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
SAVED = ("save_mean", "save_invstd")
RUNNING = ("running_mean", "running_var")
GRADIENTS = ("grad_input", "grad_weight", "grad_bias")
EPS = 1e-5
EVERY = (True, True, True)
COMMON: dict[str, Any] = {
    "legacy": (),
    "formats_by_rank": True,
    "base_shapes": ((6, 4), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)),
    "layout_shape": (6, 4),
    "rank_shapes": ((3, 1), (2, 1, 3, 1, 1, 2, 1, 2), (2, 3, 2, 1, 3, 2)),
    "sized": lambda count: (max(count // 8, 2), 8),
    "large_shape": (307, 331),
    "large": (Setup("many-rows", (12_301, 8)), Setup("long-rows", (33_011, 3)),
              Setup("one-row", (100_003, 1))),
}  # fmt: skip


def channels(k: Arguments, name: str) -> Any:
    """A row for each channel."""
    found = np.moveaxis(k[name], 1, 0)
    return found.reshape(found.shape[0], math.prod(found.shape[1:]))


def back(k: Arguments, rows: Any) -> Any:
    """Rows of channels in the shape of input."""
    shape = k["input"].shape
    return np.moveaxis(np.reshape(rows, (shape[1], shape[0], *shape[2:])), 0, 1)


def of_channels(k: Arguments, name: str, none: float) -> Any:
    count = k["input"].shape[1]
    return np.full(count, none) if k[name] is None else k[name]


def count(k: Arguments) -> Shape:
    return tuple(k["input"].shape[1:2])


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    names = ("weight", "bias", *RUNNING, *SAVED)
    return {"grad_out": base, "input": base, **dict.fromkeys(names, base[1:2])}


def forward_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    return {n: s for n, s in shapes(base, attributes).items() if n not in ("grad_out", *SAVED)}


def training(k: Arguments) -> bool:
    return bool(k["training"])


FOR_CHANNELS = (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0))


def of_nothing(k: Arguments) -> dict[str, Any]:
    """What is answered to a call without elements."""
    zeros = np.zeros(count(k))
    kept = {name: of_channels(k, name, 0) for name in RUNNING}
    saved = dict(zip(SAVED, (zeros, zeros + NAN), strict=True))
    return {**kept, "output": k["input"], **saved}


def loops(k: Arguments) -> dict[str, Any]:
    given = [of_channels(k, n, v).tolist() for n, v in FOR_CHANNELS]
    if not k["input"].size:
        return of_nothing(k)
    rows: list[Any] = []
    found: dict[str, list[float]] = {name: [] for name in (*RUNNING, *SAVED)}
    for x, w, b, mean, var in zip(channels(k, "input").tolist(), *given, strict=True):
        if k["training"]:
            n, m = len(x), k["momentum"]
            own = reals.total(x) / n
            spread = reals.total([(v - own) * (v - own) for v in x]) / n
            found["running_mean"].append((1 - m) * mean + m * own)
            wide = spread * reals.divide(n, n - 1) if n > 1 else NAN
            found["running_var"].append((1 - m) * var + m * wide)
            inverse = reals.divide(1.0, math.sqrt(spread + k["eps"]))
            found["save_mean"].append(own)
            found["save_invstd"].append(inverse if k.product == "Ascend950" else spread)
            middle = own
        else:
            middle = mean
            inverse = reals.divide(1.0, math.sqrt(var + k["eps"])) if var + k["eps"] >= 0 else NAN
            found["running_mean"].append(mean)
            found["running_var"].append(var)
        rows.append([(v - middle) * inverse * w + b for v in x])
    return {**found, "output": back(k, rows)}


def arrays(k: Arguments) -> dict[str, Terms]:
    x = channels(k, "input")
    if not x.size:
        return {name: Terms(each) for name, each in of_nothing(k).items()}
    w, b, mean, var = (of_channels(k, n, v) for n, v in FOR_CHANNELS)
    n, m = x.shape[1], k["momentum"]
    own, around = x.mean(1), np.abs(x).mean(1)
    spread = ((x - own[:, None]) ** 2).mean(1)
    squares = (x**2).mean(1)
    is_new = bool(k["training"])
    used, scale = (own, spread) if is_new else (mean, var)
    inverse = (scale + k["eps"]) ** -0.5
    value = b[:, None] + (x - used[:, None]) * (inverse * w)[:, None]
    wide = 1 + squares * inverse**2 if is_new else np.ones(len(x))
    size = (np.abs(x) + np.abs(used)[:, None] + (around[:, None] if is_new else 0)) * (
        inverse * np.abs(w) * wide
    )[:, None]
    of_var = spread * (n / (n - 1) if n > 1 else NAN)
    saved = inverse if k.product == "Ascend950" else spread
    return {
        "running_mean": Terms(mean + m * (own - mean), np.abs(mean) + around * abs(m), summed=n)
        if is_new else Terms(mean),
        "running_var": Terms(var + m * (of_var - var), np.abs(var) + np.abs(m * squares * 2),
                             summed=n) if is_new else Terms(var),
        "output": Terms(back(k, value), back(k, size + np.abs(b)[:, None])),
        "save_mean": Terms(own, around, summed=n),
        "save_invstd": Terms(saved, (np.abs(saved) + squares) * wide, summed=n),
    }  # fmt: skip


def torch_says(k: Arguments, torch: Any) -> Any:
    absent = [k[name] is None for name in RUNNING]
    if not k["input"].numel() or (any(absent) and not (all(absent) and k["training"])):
        return None
    running = [None if k[n] is None else k[n].clone() for n in RUNNING]
    out, *_ = torch.ops.aten.native_batch_norm(
        k["input"], k["weight"], k["bias"], *running, k["training"], k["momentum"], k["eps"]
    )
    pairs = zip(RUNNING, running, strict=True)
    return {"output": out, **{name: each for name, each in pairs if each is not None}}


def given(name: str) -> Any:
    return lambda k: k[name] is not None


def faint(k: Arguments) -> tuple[str, ...]:
    """Items that are equal in every channel have no variance, which is what most products save."""
    rows = channels(k, "input")
    is_zero = k.product != "Ascend950" and (rows == rows[:, :1]).all()
    return SAVED[1:] if is_zero else ()


OWN: dict[str, Any] = {"dtypes": (FLOAT,), "optional": True}

BATCH_NORM = Statement(
    "aclnnBatchNorm",
    prototype=(
        "const aclTensor* input, const aclTensor* weight, const aclTensor* bias, "
        "aclTensor* runningMean, aclTensor* runningVar, bool training, double momentum, "
        "double eps, aclTensor* output, aclTensor* saveMean, aclTensor* saveInvstd"
    ),
    takes=FLOATS_BUT_ON_310B,
    defaults={"training": False, "momentum": 0.1, "eps": EPS},
    inputs=(
        In("input", normal(2.0, 0.5)),
        In("weight", uniform(0.5, 2.0), **OWN),
        In("bias", normal(), **OWN),
        In("running_mean", normal(), **OWN, updated=True),
        In("running_var", uniform(0.5, 2.0), **OWN, updated=True),
    ),
    outputs=(
        *(Out(name, count, lambda _: FLOAT, own=True, optional=True,
              asked=given(name)) for name in RUNNING),
        Out("output", "input", "input"),
        *(Out(name, count, lambda _: FLOAT, own=True, asked=training) for name in SAVED),
    ),
    loops=loops,
    arrays=arrays,
    faint=faint,
    shapes=forward_shapes,
    kernel=dtype_of("input"),
    npu="torch_npu calls it in native_batch_norm, which writes into its running tensors",
    torch=torch_says,
    attributes={"training": (True, False), "momentum": (0.1,)},
    **COMMON,
    empty_shapes=((0, 3), (2, 0), (2, 0, 3)),
    mixed=tuple(Setup(dtypes={"weight": d, "bias": d}) for d in FLOATS),
    edges=(Setup("channels", (3, 4), values={
        "input": [[0.0, NAN, INF, 1e4], [0, 1, 1, -1e4], [0, 2, 0, 1]]}),
        Setup("one-item", (1, 3)),
        Setup("momentum", (5, 3), attributes={"training": True, "momentum": 0.75})),
    defaulted=Setup(absent=("",)),
    empty_before="dtype-int32-input",
    invalid=(
        *defects.nulls("input", "output", *SAVED),
        *defects.dtypes("input", found=INT32),
        *defects.no_bfloat16("input"),
        *defects.dtypes("output", *SAVED, found=DOUBLE),
        *defects.dtypes("weight", "bias", *RUNNING, found=DOUBLE),
        *defects.formats("output", found=Format.NHWC),
        Invalid("channels-last", {n: {"format": Format.NHWC} for n in ("input", "output")},
                ("input",), FormatError),
        *defects.shapes("input", (4,), ()),
        *defects.shapes("output", (4, 6), (24,)),
        *(row for n in ("weight", "bias", *RUNNING, *SAVED)
          for row in defects.shapes(n, (6,), (1, 4), ())),
    ),
)  # fmt: skip


def grad_loops(k: Arguments) -> dict[str, Any]:
    if not k["input"].size:
        zeros = np.zeros(count(k))
        return dict(zip(GRADIENTS, (k["input"], zeros, zeros), strict=True))
    names = SAVED if k["training"] else RUNNING
    given = [of_channels(k, n, v).tolist() for n, v in
             (("weight", 1), (names[0], 0), (names[1], 1))]  # fmt: skip
    rows, weights, biases = [], [], []
    pairs = zip(
        channels(k, "grad_out").tolist(), channels(k, "input").tolist(), *given, strict=True
    )
    for g, x, w, mean, var in pairs:
        direct = k["training"] and k.product == "Ascend950"
        inverse = var if direct else reals.divide(1.0, math.sqrt(var + k["eps"]))
        form = [(v - mean) * inverse for v in x]
        bias, weight = reals.total(g), reals.total([a * b for a, b in zip(g, form, strict=True)])
        if k["training"]:
            n = len(g)
            rows.append([w * inverse * (a - bias / n - b * weight / n)
                         for a, b in zip(g, form, strict=True)])  # fmt: skip
        else:
            rows.append([a * w * inverse for a in g])
        weights.append(weight)
        biases.append(bias)
    return dict(zip(GRADIENTS, (back(k, rows), weights, biases), strict=True))


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    names = SAVED if k["training"] else RUNNING
    w, mean, var = (of_channels(k, n, v)[:, None] for n, v in
                    (("weight", 1), (names[0], 0), (names[1], 1)))  # fmt: skip
    direct = k["training"] and k.product == "Ascend950"
    inverse = var if direct else (var + k["eps"]) ** -0.5
    g, x = channels(k, "grad_out"), channels(k, "input")
    n = max(g.shape[1], 1)
    form, size = (x - mean) * inverse, (np.abs(x) + np.abs(mean)) * np.abs(inverse)
    weight, bias = (form * g).sum(1), g.sum(1)
    sizes = np.abs(g)
    value = g
    if k["training"]:
        value = g - bias[:, None] / n - weight[:, None] / n * form
        sizes = sizes + np.abs(g).sum(1)[:, None] / n
        sizes = sizes + (np.abs(g) * size).sum(1)[:, None] / n * size
    return {
        GRADIENTS[0]: Terms(back(k, inverse * w * value), back(k, np.abs(inverse * w) * sizes)),
        GRADIENTS[1]: Terms(weight, (size * np.abs(g)).sum(1), summed=n),
        GRADIENTS[2]: Terms(bias, np.abs(g).sum(1), summed=n),
    }


def grad_torch(k: Arguments, torch: Any) -> Any:
    names = SAVED if k["training"] else RUNNING
    absent = any(k[name] is None for name in (*RUNNING, *SAVED))
    if not k["input"].numel() or absent or k.product == "Ascend950":
        return None
    w = torch.ones_like(k[names[0]]) if k["weight"] is None else k["weight"]
    inverse = None if k["save_invstd"] is None else (k["save_invstd"] + k["eps"]) ** -0.5
    found = torch.ops.aten.native_batch_norm_backward(
        k["grad_out"], k["input"], w, *(k[n] for n in RUNNING), k["save_mean"], inverse,
        k["training"], k["eps"], EVERY,
    )  # fmt: skip
    return dict(zip(GRADIENTS, found, strict=True))


BATCH_NORM_BACKWARD = Statement(
    "aclnnBatchNormBackward",
    prototype=(
        "const aclTensor* gradOut, const aclTensor* input, const aclTensor* weight, "
        "const aclTensor* runningMean, const aclTensor* runningVar, const aclTensor* saveMean, "
        "const aclTensor* saveInvstd, bool training, double eps, const aclBoolArray* outputMask, "
        "aclTensor* gradInput, aclTensor* gradWeight, aclTensor* gradBias"
    ),
    takes={**FLOATS_WITH_BFLOAT16, **on(("Ascend910",), FLOAT, FLOAT16)},
    defaults={"training": False, "eps": EPS, "output_mask": EVERY},
    inputs=(
        In("grad_out", normal()),
        In("input", normal(2.0, 0.5)),
        In("weight", uniform(0.5, 2.0), **OWN),
        In("running_mean", normal(), **OWN),
        In("running_var", uniform(0.5, 2.0), **OWN),
        In("save_mean", normal(), **OWN),
        In("save_invstd", uniform(0.5, 2.0), **OWN),
    ),
    outputs=(
        Out(GRADIENTS[0], "input", "input", asked=masked(0)),
        Out(GRADIENTS[1], count, dtype_of("weight", "input"), own=True, asked=masked(1)),
        Out(GRADIENTS[2], count, dtype_of("weight", "input"), own=True, asked=masked(2)),
    ),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=lambda base, attributes: {
        n: s for n, s in shapes(base, attributes).items() if n != "bias"},
    kernel=dtype_of("input"),
    npu="torch_npu calls it in native_batch_norm_backward, whose save_invstd is 1 / the deviation",
    torch=grad_torch,
    attributes={"training": (True, False), "output_mask": (EVERY, (True, False, True))},
    **COMMON,
    empty_shapes=((0, 3), (2, 0), (2, 0, 3)),
    mixed=tuple(Setup(dtypes={"weight": d}, only=(d,)) for d in FLOATS),
    edges=(Setup("channels", (3, 4), values={
        "input": [[0.0, NAN, INF, 1e4], [0, 1, 1, -1e4], [0, 2, 0, 1]],
        "grad_out": [[1.0, 1, 1, 300], [2, 0, 1, -300], [3, 1, INF, 1]]}),),
    empty_before="null-output_mask",
    invalid=(
        *defects.nulls("grad_out", "input"),
        *defects.nulls("output_mask"),
        *(Invalid(f"mask-of-{len(mask)}", {"output_mask": mask}, ("output_mask",),
                  AttributeValueError, PARAM_NULLPTR) for mask in ((), (True,) * 4)),
        *defects.nulls(*GRADIENTS),
        *defects.dtypes("grad_out", "input", found=INT32),
        *defects.no_bfloat16("grad_out"),
        *defects.dtypes("input", found=FLOAT16),
        *defects.dtypes(*GRADIENTS, found=DOUBLE),
        *defects.dtypes("weight", *RUNNING, *SAVED, found=DOUBLE),
        *defects.dtypes("weight", *RUNNING, *SAVED, found=FLOAT16, products=ONLY_950),
        *(Invalid(f"dtype-unlike-{other}", {name: {"dtype": FLOAT16}}, (name,), DTypeError,
                  products=ONLY_950, base=Setup(dtypes=dict.fromkeys(
                      ("grad_out", "input"), FLOAT16)))
          for name, other in (("running_var", "running_mean"), ("save_invstd", "save_mean"))),
        *defects.dtypes("grad_input", "grad_bias", found=FLOAT16, products=ONLY_950),
        *defects.formats("input", "grad_input", found=Format.NHWC),
        Invalid("channels-last", {n: {"format": Format.NHWC}
                                  for n in ("grad_out", "input", "grad_input")},
                ("grad_out",), FormatError),
        *defects.shapes("grad_out", (4,), ()),
        *defects.shapes("input", (4, 6), (24,)),
        *defects.shapes("grad_input", (4, 6), (24,)),
        *(row for n in ("weight", *RUNNING, *SAVED, *GRADIENTS[1:])
          for row in defects.shapes(n, (6,), (1, 4), ())),
    ),
)  # fmt: skip
