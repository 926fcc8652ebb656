"""aclnnCrossEntropyLossGrad [src:cross-entropy]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT32, INT64, UINT8
from npucall.errors import AclnnStatus, ArgumentError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal, uniform, upstream
from npucall_conformance.stating.elementwise import capped
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import ONLY_950, Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
ALL_BUT_950 = ("Ascend910B", "Ascend910_93")


def log_softmax(draw: Draw) -> Any:
    logits = draw.random.normal(0, 2, draw.shape)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def labels(draw: Draw) -> Any:
    """Labels of which the last is not ignored, so that some row counts."""
    drawn = draw.random.integers(0, max(draw.shapes["log_prob"][1], 1), draw.shape)
    last = drawn[-1:]
    last[last == draw["ignore_index"]] = 0
    return drawn


def loops(k: Arguments) -> Any:
    rows, targets = k["log_prob"].tolist(), [int(label) for label in k["target"].tolist()]
    classes = k["log_prob"].shape[1]
    weights = [1.0] * classes if k["weight"] is None else k["weight"].tolist()
    upstream = k["grad_loss"].reshape(-1).tolist()
    counted = [label != k["ignore_index"] for label in targets]
    divisor = 1.0
    if k["reduction"] in ("mean", None):
        own = zip(targets, counted, strict=True)
        divisor = math.fsum(weights[label] for label, counts in own if counts)
    smoothing, total = k["label_smoothing"], math.fsum(weights)
    result = []
    for i, (row, y) in enumerate(zip(rows, targets, strict=True)):
        sharp = smooth = 0.0
        if counted[i]:
            g = upstream[i if k["reduction"] == "none" else 0]
            sharp = reals.divide(g * (1 - smoothing) * weights[y], divisor)
            smooth = reals.divide(g, divisor) * (smoothing / classes)
        out = []
        for j, log_p in enumerate(row):
            p = reals.exp(log_p, k.top)
            value = sharp * (p - (1 if j == y else 0))
            out.append(value + smooth * (p * total - weights[j]) if smoothing else value)
        result.append(out)
    return result


def arrays(k: Arguments) -> Terms:
    count, classes = k["log_prob"].shape
    p = capped(np.exp(k["log_prob"]), k.top)
    weights = np.ones(classes) if k["weight"] is None else k["weight"]
    counted = k["target"] != k["ignore_index"]
    label = (k["target"][:, None] == np.arange(classes)) & counted[:, None]
    own = np.where(label, weights, 0.0).sum(1)
    g = np.broadcast_to(k["grad_loss"], count)
    if k["reduction"] != "none" and k["reduction"] != "sum":
        g = g / own.sum()
    smoothing = k["label_smoothing"]
    sharp = np.where(counted, g * own * (1 - smoothing), 0.0)[:, None]
    smooth = np.where(counted, g * smoothing, 0.0)[:, None] / classes
    value = np.where(label, sharp * (p - 1), sharp * p)
    size = np.abs(sharp) * (p + label)
    if smoothing:
        value = value + smooth * (p * weights.sum() - weights)
        size = size + np.abs(smooth) * (p * np.abs(weights).sum() + np.abs(weights))
    return Terms(value, size)


def torch_says(k: Arguments, torch: Any) -> Any:
    """Back through nll_loss, then through log_softmax, whose result is the given input."""
    log_prob = k["log_prob"].clone().requires_grad_()
    loss = torch.nn.functional.nll_loss(
        log_prob, k["target"].long(), k["weight"], ignore_index=k["ignore_index"],
        reduction=k["reduction"] or "mean",
    )  # fmt: skip
    if k["label_smoothing"]:
        return None
    loss.backward(k["grad_loss"].reshape(loss.shape))
    back = torch.ops.aten._log_softmax_backward_data  # noqa: SLF001  # torch's name for it
    return back(log_prob.grad, log_prob.detach(), 1, torch.float64)


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    return {
        "grad_loss": base[:1] if attributes["reduction"] == "none" else (),
        "log_prob": base,
        "target": base[:1],
        "weight": base[1:],
        "grad_zloss": (),
        "lse_for_zloss": base[:1],
    }


def tiling(row: str, changes: Any, **more: Any) -> Invalid:
    """A shape that the software finds late, when it cuts the work into tiles."""
    (name,) = changes
    change = {name: {"shape": changes[name]}}
    return Invalid(row, change, (name,), ShapeError, TILING, **more)


def smoothed(value: float, note: str = "smoothed", **values: Any) -> Setup:
    return Setup(
        note, (5, 7), values=values, attributes={"label_smoothing": value}, products=ONLY_950
    )


def zloss(name: str, shape: Shape) -> Invalid:
    """An argument of the z-loss, which is not computed; nothing else is wrong with it."""
    base = Setup(shapes={name: shape})
    return Invalid(name.replace("_", "-"), {name: {}}, (name,), ArgumentError, base=base)


SPECIAL = (-1.0, -INF, INF, NAN, 0.0, 89.0, -200.0, -0.0)
"""Logarithms of probabilities, and of numbers that are no probabilities."""
MEAN = Setup(attributes={"reduction": "mean"})

CROSS_ENTROPY_LOSS_GRAD = Statement(
    "aclnnCrossEntropyLossGrad",
    prototype=(
        "const aclTensor* gradLoss, const aclTensor* logProb, const aclTensor* target, "
        "const aclTensor* weightOptional, const aclTensor* gradZlossOptional, "
        "const aclTensor* lseForZlossOptional, char* reductionOptional, int64_t ignoreIndex, "
        "double labelSmoothing, double lseSquareScaleForZloss, const aclTensor* out"
    ),
    takes=FLOATS_WITH_BFLOAT16,
    legacy=(),
    defaults={
        "reduction": "mean",
        "ignore_index": -100,
        "label_smoothing": 0.0,
        "lse_square_scale_for_zloss": 0.0,
    },
    defaulted=Setup(values={"target": [0, 1, -100, 3, 2]}, attributes={"ignore_index": -100}),
    inputs=(
        In("grad_loss", upstream("target")),
        In("log_prob", log_softmax),
        In("target", labels, dtypes=(INT64,)),
        In("weight", uniform(0.25, 2.0), dtypes=(FLOAT,), optional=True),
        In("grad_zloss", normal(), optional=True, refused=True),
        In("lse_for_zloss", normal(), optional=True, refused=True),
    ),
    outputs=(Out("out", shape="log_prob", dtype="log_prob"),),
    loops=loops,
    arrays=arrays,
    kernel=dtype_of("log_prob"),
    shapes=shapes,
    npu="torch_npu computes log_prob itself and takes none",
    torch=torch_says,
    attributes={"reduction": ("none", "mean", "sum"), "ignore_index": (-100, 1)},
    base_shapes=((4, 6), (35, 3), (9, 33), (17, 10)),
    layout_shape=(5, 4),
    rank_shapes=((1, 1), (1, 5), (3, 1), (2, 3)),
    empty_shapes=((0, 3), (2, 0), (0, 0)),
    large_shape=(3169, 32),
    large=(Setup("many-rows", (50_021, 2)), Setup("long-rows", (2, 50_021))),
    sized=lambda count: (max(count // 32, 1), 32),
    broadcast=(
        *(
            Setup(f"gradient-of-one-{reduction}", (3, 4), {"grad_loss": (1,)},
                 attributes={"reduction": reduction})
            for reduction in ("mean", "sum")
        ),
    ),
    mixed=(
        *(Setup("int32-labels", dtypes={"target": INT32}, products=ONLY_950, only=(dtype,))
          for dtype in (FLOAT, FLOAT16)),
    ),
    edges=(
        Setup("log-probabilities", (3, 8), values={
            "log_prob": np.array([SPECIAL, SPECIAL[::-1], SPECIAL[4:] + SPECIAL[:4]]),
            "target": [0, 6, 3],
        }),
        *(
            Setup("weights", (4, 4), values={
                "weight": [0.0, w, 1.0, 0.5], "target": [0, 1, 2, 3],
                "log_prob": np.full((4, 4), -1.0),
            })
            for w in (-1.0, INF, NAN)
        ),
        Setup("weights-without-sum", (2, 3), values={"weight": [0.0, 0, 0], "target": [0, 2]}),
        Setup("gradients", (5, 3), values={"grad_loss": [0.0, -0.0, INF, NAN, 300.0]},
             attributes={"reduction": "none"}),
        *(Setup("gradient", (5, 3), values={"grad_loss": [g]}, attributes={"reduction": r})
          for g, r in ((0.0, "mean"), (INF, "mean"), (NAN, "sum"), (300.0, "sum"))),
        Setup("ignored", (4, 3), values={"target": [-7, 1, 2, -7]},
             attributes={"ignore_index": -7}),
        Setup("ignored-beyond", (4, 3), values={"target": [255, 1, 0, 255]},
             attributes={"ignore_index": 255}),
        Setup("all-ignored", (3, 4), values={"target": [1, 1, 1]}, attributes={"ignore_index": 1}),
        Setup("all-ignored-nan", (3, 4), values={
            "target": [1, 1, 1], "log_prob": np.full((3, 4), NAN)
        }, attributes={"ignore_index": 1}),
        Setup("certain", (2, 3), values={
            "log_prob": [[0.0, -100.0, -90.0], [-1e-4, -9.2, -30.0]], "target": [0, 0]
        }),
        *map(smoothed, (0.125, 0.9, 1.0)),
        smoothed(0.5, "smoothed-weights", weight=[0.0, 1.0, -1.0, 2.0, 0.5, 0.25, 4.0]),
        smoothed(0.5, "smoothed-special", log_prob=np.array([SPECIAL[1:]] * 5)),
    ),
    reductions=(
        Setup("reduction-null", (5, 4), shapes={"grad_loss": ()}, attributes={"reduction": None}),
    ),
    empty_spares=("label-",),
    invalid=(
        *defects.nulls("grad_loss", "log_prob", "target", "out"),
        *defects.dtypes("grad_loss"),
        *defects.dtypes("log_prob", "out", found=FLOAT16),
        *defects.dtypes("target", found=INT32, products=ALL_BUT_950),
        *defects.dtypes("target", found=UINT8),
        *defects.dtypes("target", found=FLOAT),
        *defects.dtypes("weight", found=FLOAT16),
        *defects.dtypes("weight", found=DOUBLE),
        *defects.values("reduction", "batchmean", "Mean", "", block="reduction",
                        status=TILING, base=MEAN),
        *defects.values("label_smoothing", 1.5, -0.5, NAN, status=TILING),
        *(tiling(f"log-prob-rank-{len(shape)}", {"log_prob": shape})
          for shape in ((5,), (5, 4, 1), ())),
        *(tiling(f"gradients-{i}", {"grad_loss": shape})
          for i, shape in enumerate(((4,), (1,), (), (5, 1)))),
        *(tiling(f"gradients-mean-{i}", {"grad_loss": shape}, base=MEAN)
          for i, shape in enumerate(((5,), (1, 1), (0,)))),
        *(tiling(f"target-{i}", {"target": shape})
          for i, shape in enumerate(((4,), (1,), (), (5, 1), (5, 4)))),
        *(tiling(f"weight-rank-{len(shape)}", {"weight": shape}) for shape in ((), (1, 4))),
        *(tiling(f"weight-{shape[0]}", {"weight": shape}) for shape in ((5,), (1,))),
        *(tiling(f"out-{i}", {"out": shape})
          for i, shape in enumerate(((4, 5), (20,), (1, 5, 4)))),
        zloss("grad_zloss", ()),
        Invalid("both-of-the-z-loss", {"grad_zloss": {}}, ("grad_zloss",), ArgumentError,
                base=Setup(shapes={"grad_zloss": (), "lse_for_zloss": (5,)})),
        zloss("lse_for_zloss", (5,)),
        *defects.values("lse_square_scale_for_zloss", 1.0, -1e-4, NAN),
        *defects.values("label_smoothing", 0.1, 1.0, products=ALL_BUT_950),
        *(Invalid(f"label-{row}", {"target": {"values": [0, 1, label, 2, 3]}}, ("target",),
                  ArgumentError) for row, label in (("beyond", 4), ("below", -1))),
    ),
)  # fmt: skip
