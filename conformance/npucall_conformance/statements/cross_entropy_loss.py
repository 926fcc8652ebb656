"""aclnnCrossEntropyLoss [src:cross-entropy]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT32, INT64, UINT8
from npucall.errors import AclnnStatus, ArgumentError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _npu
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal, uniform
from npucall_conformance.stating.parts import (
    Attributes,
    Contradiction,
    In,
    Invalid,
    Out,
    Refusal,
    Setup,
)
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
ALL_BUT_950 = ("Ascend910B", "Ascend910_93")
TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
OUTPUTS = ("loss_out", "log_prob_out", "zloss_out", "lse_for_zloss_out")


def labels(draw: Draw) -> Any:
    """Labels of which the last is not ignored, so that some row counts."""
    drawn = draw.random.integers(0, max(draw.shapes["input"][1], 1), draw.shape)
    last = drawn[-1:]
    last[last == draw["ignore_index"]] = 0
    return drawn


def log_softmax_of(row: list[float]) -> list[float]:
    """A row of logarithms; one infinite logit, or NaN, makes all of them NaN."""
    top = max(row)
    if any(map(math.isnan, row)) or math.isinf(top):
        return [NAN] * len(row)
    total = math.log(math.fsum(math.exp(x - top) for x in row))
    return [x - top - total for x in row]


def loops(k: Arguments) -> dict[str, Any]:
    classes = k["input"].shape[1]
    weights = [1.0] * classes if k["weight"] is None else k["weight"].tolist()
    smoothing = k["label_smoothing"]
    table = [log_softmax_of(row) for row in k["input"].tolist()]
    losses, counted = [], []
    for row, y in zip(table, map(int, k["target"].tolist()), strict=True):
        losses.append(0.0)
        if y == k["ignore_index"]:
            continue
        counted.append(weights[y])
        losses[-1] = -(1 - smoothing) * weights[y] * row[y]
        if smoothing:
            all_of_them = reals.total([w * p for w, p in zip(weights, row, strict=True)])
            losses[-1] -= smoothing / classes * all_of_them
    loss: Any = losses
    if k["reduction"] != "none":
        loss = reals.total(losses)
        loss = [loss if k["reduction"] == "sum" else reals.divide(loss, reals.total(counted))]
    shape = k["input"].shape
    nothing = np.zeros(0)
    return {"loss_out": loss, "log_prob_out": np.reshape(table, shape),
            "zloss_out": nothing, "lse_for_zloss_out": nothing}  # fmt: skip


def arrays(k: Arguments) -> dict[str, Terms]:
    x = k["input"]
    classes, smoothing = x.shape[1], k["label_smoothing"]
    top = x.max(1, keepdims=True, initial=-np.inf)
    logarithm = np.log(np.exp(x - top).sum(1, keepdims=True))
    p = x - top - logarithm
    # What cancels: the logit, the largest one, and the logarithm of the sum.
    cancelling = np.nan_to_num(np.abs(x) + np.abs(top) + np.abs(logarithm), posinf=0.0)
    weights = np.ones(classes) if k["weight"] is None else k["weight"]
    counted = k["target"] != k["ignore_index"]
    hit = (k["target"][:, None] == np.arange(classes)) & counted[:, None]
    own = np.where(hit, weights, 0.0).sum(1)
    losses = -(1 - smoothing) * own * np.where(hit, p, 0.0).sum(1)
    sizes = own * np.where(hit, cancelling, 0.0).sum(1)
    if smoothing:
        losses = np.where(counted, losses - smoothing / classes * (weights * p).sum(1), 0.0)
        sizes = sizes + np.abs(weights * cancelling).sum(1)
    losses, sizes = np.where(counted, losses, 0.0), np.abs(sizes)
    if k["reduction"] != "none":
        divisor = 1.0 if k["reduction"] == "sum" else own.sum()
        losses, sizes = losses.sum(keepdims=True) / divisor, sizes.sum(keepdims=True) / abs(divisor)
    nothing = Terms(np.zeros(0))
    return {"loss_out": Terms(losses, sizes), "log_prob_out": Terms(p, cancelling),
            "zloss_out": nothing, "lse_for_zloss_out": nothing}  # fmt: skip


def torch_says(k: Arguments, torch: Any) -> Any:
    loss = torch.nn.functional.cross_entropy(
        k["input"], k["target"].long(), k["weight"], ignore_index=k["ignore_index"],
        reduction=k["reduction"] or "mean", label_smoothing=k["label_smoothing"],
    )  # fmt: skip
    return {"loss_out": loss.reshape(-1), "log_prob_out": k["input"].log_softmax(1)}


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    del attributes
    return {"input": base, "target": base[:1], "weight": base[1:]}


def loss_shape(k: Arguments) -> Shape:
    return k["target"].shape if k["reduction"] == "none" else (1,)


def tiling(row: str, name: str, shape: Shape) -> Invalid:
    """A shape that the software finds late, when it cuts the work into tiles."""
    return Invalid(row, {name: {"shape": shape}}, (name,), ShapeError, TILING)


def smoothed(value: float, note: str = "smoothed", **values: Any) -> Setup:
    return Setup(note, (5, 7), values=values, attributes={"label_smoothing": value})


SPECIAL = (1.0, -INF, 0.0, -0.0, 89.0, -200.0, 3e4, -3e4)
"""Logits of a row that is finite but for one logarithm."""
REDUCED = tuple(Setup(attributes={"reduction": r}) for r in ("mean", "sum"))

CROSS_ENTROPY_LOSS = Statement(
    "aclnnCrossEntropyLoss",
    prototype=(
        "const aclTensor* input, const aclTensor* target, const aclTensor* weightOptional, "
        "char* reductionOptional, int64_t ignoreIndex, double labelSmoothing, "
        "double lseSquareScaleForZloss, bool returnZloss, const aclTensor* lossOut, "
        "const aclTensor* logProbOut, const aclTensor* zlossOut, const aclTensor* lseForZlossOut"
    ),
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    defaults={
        "reduction": "mean",
        "ignore_index": -100,
        "label_smoothing": 0.0,
        "lse_square_scale_for_zloss": 0.0,
        "return_zloss": False,
    },
    defaulted=Setup(values={"target": [0, 1, -100, 3, 2]}, attributes={"ignore_index": -100}),
    inputs=(
        In("input", normal(2.0)),
        In("target", labels, dtypes=(INT64,)),
        In("weight", uniform(0.25, 2.0), dtypes=(FLOAT,), optional=True),
    ),
    outputs=(
        Out("loss_out", shape=loss_shape, dtype="input"),
        Out("log_prob_out", shape="input", dtype="input"),
        Out("zloss_out", shape=lambda _: (0,), dtype="input"),
        Out("lse_for_zloss_out", shape=lambda _: (0,), dtype="input"),
    ),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=dtype_of("input"),
    npu=_npu.cross_entropy,
    torch=torch_says,
    attributes={
        "reduction": ("none", "mean", "sum"),
        "ignore_index": (-100, 1),
        "label_smoothing": (0.0, 0.125),
    },
    base_shapes=((4, 6), (35, 3), (9, 33), (17, 10)),
    layout_shape=(5, 4),
    rank_shapes=((1, 1), (1, 5), (3, 1), (2, 3)),
    empty_shapes=((0, 3), (0, 1)),
    large_shape=(3169, 32),
    large=(Setup("many-rows", (50_021, 2)), Setup("long-rows", (2, 50_021))),
    sized=lambda count: (max(count // 32, 1), 32),
    broadcast=(Setup("one-row", (1, 7)), Setup("one-class", (5, 1))),
    mixed=(
        *(Setup("int32-labels", dtypes={"target": INT32}, products=ONLY_950, only=(dtype,))
          for dtype in (FLOAT, FLOAT16)),
    ),
    edges=(
        *(Setup("logits", (8, 8), values={
            "input": np.array([np.roll(SPECIAL, n) for n in range(8)]), "target": [y] * 8
        }, attributes={"label_smoothing": 0.0}) for y in (0, 5)),
        Setup("not-a-number", (5, 3), values={
            "input": [[NAN, 0.0, 1.0], [INF, 0.0, 1.0], [-INF] * 3, [INF, -INF, NAN], [1.0, 2, 3]],
            "target": [1, 0, 2, 0, 2],
        }, attributes={"reduction": "none"}),
        *(Setup("weights", (4, 4), values={
            "weight": [0.0, w, 1.0, 0.5], "target": [0, 1, 2, 3]}) for w in (-0.5, INF, NAN)),
        Setup("weights-without-sum", (2, 3), values={"weight": [0.0, 0, 0], "target": [0, 2]}),
        Setup("ignored", (4, 3), values={"target": [-7, 1, 2, -7]},
             attributes={"ignore_index": -7}),
        Setup("ignored-beyond", (4, 3), values={"target": [255, 1, 0, 255]},
             attributes={"ignore_index": 255}),
        Setup("all-ignored", (3, 4), values={"target": [1, 1, 1]}, attributes={"ignore_index": 1}),
        Setup("ignored-nan", (3, 4), values={
            "target": [1, 1, 2], "input": [[NAN] * 4, [INF] * 4, [0.0, 1, 2, 3]]
        }, attributes={"ignore_index": 1}),
        Setup("certain", (2, 3), values={"input": [[90.0, -10, 0], [9.2, 0, -30]],
                                         "target": [0, 0]}),
        *map(smoothed, (0.9, 1.0)),
        smoothed(0.5, "smoothed-weights", weight=[0.0, 1.0, 0.5, 2.0, 0.5, 0.25, 4.0]),
    ),
    reductions=(Setup("reduction-null", (5, 4), attributes={"reduction": None}),),
    empty_spares=("label-",),
    invalid=(
        *defects.nulls("input", "target", *OUTPUTS),
        *defects.dtypes("input"),
        *defects.dtypes(*OUTPUTS, found=FLOAT16),
        *defects.dtypes("target", found=INT32, products=ALL_BUT_950),
        *defects.dtypes("target", found=UINT8),
        *defects.dtypes("target", found=FLOAT),
        *defects.dtypes("weight", found=FLOAT16),
        *defects.dtypes("weight", found=DOUBLE),
        *defects.values("reduction", "batchmean", "Mean", "", block="reduction", status=TILING),
        *defects.values("label_smoothing", 1.5, -0.5, NAN, status=TILING),
        *(tiling(f"input-rank-{len(shape)}", "input", shape) for shape in ((5,), (5, 4, 1), ())),
        tiling("no-classes", "input", (5, 0)),
        *(tiling(f"target-{i}", "target", shape)
          for i, shape in enumerate(((4,), (1,), (), (5, 1), (5, 4)))),
        *(tiling(f"weight-{i}", "weight", shape)
          for i, shape in enumerate(((), (1, 4), (5,), (1,)))),
        *defects.shapes("loss_out", (4,), (5, 1)),
        *defects.shapes("loss_out", (1,), (), alone=True),
        *(Invalid(f"loss-{setup.attributes['reduction']}-{i}", {"loss_out": {"shape": shape}},
                  ("loss_out",), ShapeError, base=setup)
          for setup in REDUCED for i, shape in enumerate(((), (5,), (1, 1)))),
        *defects.shapes("log_prob_out", (4, 5), (20,), (1, 5, 4)),
        *defects.values("lse_square_scale_for_zloss", 1.0, -1e-4, NAN),
        *defects.values("return_zloss", True),  # noqa: FBT003  # the value itself
        *(Invalid(f"label-{row}", {"target": {"values": [0, 1, label, 2, 3]}}, ("target",),
                  ArgumentError) for row, label in (("beyond", 4), ("below", -1))),
    ),
    contradictions=(
        Contradiction(
            "F21", "labels are smoothed on every product",
            Setup(base=(1, 3), values={"input": [[1.0, 2.0, 4.0]], "target": [2]},
                  absent=("weight",), attributes={"label_smoothing": 0.5, "reduction": "none"}),
            {"page of the loss": [1.003179], "page of the gradient": Refusal()},
            "page of the loss",
        ),
        Contradiction(
            "F22", "labels of INT32 on Atlas A2 and A3",
            Setup(base=(2, 3), dtypes={"target": INT32}, products=ALL_BUT_950),
            {"page": ..., "kernel": Refusal()}, "kernel",
        ),
    ),
)  # fmt: skip
