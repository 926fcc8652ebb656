"""aclnnScaledMaskedSoftmax and aclnnScaledMaskedSoftmaxBackward [src:scaled-masked-softmax]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32
from npucall.errors import AclnnStatus, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, integers, normal
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import BEFORE_950, ONLY_950, Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16, on

NAN, INF = reals.NAN, reals.INFINITY
TILING = AclnnStatus.ACLNN_ERR_INNER_TILING_ERROR
MASK = In("mask", integers(0, 1), dtypes=(BOOL,))
COMMON: dict[str, Any] = {
    "takes": {**FLOATS_WITH_BFLOAT16, **on(("Ascend310P",), FLOAT, FLOAT16)},
    "legacy": ("Ascend950", "Ascend310P"),
    "defaults": {"scale": 1.0, "fix_triu_mask": False},
    "attributes": {"scale": (1.0, 0.125)},
    "base_shapes": ((2, 3, 4, 5), (1, 1, 3, 17), (2, 1, 1, 4), (3, 2, 5, 1)),
    "layout_shape": (2, 3, 3, 4),
    "rank_shapes": ((1, 2, 1, 3),),
    "sized": lambda count: (1, 2, max(count // 256, 1), 128),
    "large_shape": (4, 5, 61, 83),
    "large": (Setup("many-rows", (3, 7, 1201, 4)), Setup("long-rows", (2, 3, 5, 4096))),
    "npu": "torch_npu calls it in npu_scaled_masked_softmax, where the suite does not look",
}
BAD_MASK = (
    *defects.shapes("mask", (2, 3, 4, 3), (2, 3, 3, 1), (2, 3, 1, 4)),
    *defects.shapes("mask", (3, 3, 3, 4), (2, 2, 3, 4)),
)
GRADIENT = ("grad_output", "y", "mask", "out")


def of_all(row: str, shape: Shape, *names: str, **more: Any) -> Invalid:
    """A shape of all tensors, for which the first is to blame."""
    changes = {name: {"shape": shape} for name in names}
    return Invalid(row, changes, names[:1], ShapeError, **more)


def faint(k: Arguments) -> tuple[str, ...]:
    """One element alone in its row has a slope of 0."""
    return ("out",) if k["grad_output"].shape[-1] == 1 else ()


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    """A mask for each image and all heads."""
    return {"x": base, "mask": (base[0], 1, *base[2:])}


def grad_shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"grad_output": base, "y": base, "mask": (1, base[1], *base[2:])}


def shares(draw: Draw) -> Any:
    weights = np.exp(draw.random.normal(0, 2, draw.shape))
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-9)


def rows(k: Arguments, *names: str) -> list[list[list[float]]]:
    """By name the rows of tensors, the mask in the shape of the first."""
    shape = k[names[0]].shape
    return [
        np.broadcast_to(k[name], shape).reshape(-1, shape[-1]).tolist() for name in (*names, "mask")
    ]


def loops(k: Arguments) -> Any:
    found = []
    for x, mask in zip(*rows(k, "x"), strict=True):
        scores = [-10000.0 if m else a * k["scale"] for a, m in zip(x, mask, strict=True)]
        top = NAN if any(map(math.isnan, scores)) else max(scores, default=0.0)
        powers = [reals.exp(a - top) for a in scores]
        found += [reals.divide(p, reals.total(powers)) for p in powers]
    return np.reshape(found, k["x"].shape)


def arrays(k: Arguments) -> Terms:
    scores = np.where(k["mask"] != 0, -10000.0, k["x"] * k["scale"])
    below = scores - scores.max(-1, keepdims=True)
    value = np.exp(below) / np.exp(below).sum(-1, keepdims=True)
    return Terms(value, value * (1 + np.abs(below)))


def grad_loops(k: Arguments) -> Any:
    found = []
    for g, y, mask in zip(*rows(k, "grad_output", "y"), strict=True):
        total = reals.total([a * b for a, b in zip(g, y, strict=True)])
        found += [0.0 if m else k["scale"] * (a * b - total * b)
                  for a, b, m in zip(g, y, mask, strict=True)]  # fmt: skip
    return np.reshape(found, k["y"].shape)


def grad_arrays(k: Arguments) -> Terms:
    g, y, hidden = k["grad_output"], k["y"], k["mask"] != 0
    share = np.einsum("abcd,abcd->abc", g, y)[..., None]
    size = np.abs(k["scale"]) * np.abs(y) * (np.abs(g) + np.abs(g * y).sum(-1, keepdims=True))
    value = (g * y - share * y) * k["scale"]
    return Terms(np.where(hidden, 0.0, value), np.where(hidden, 0.0, size))


def torch_says(k: Arguments, torch: Any) -> Any:
    scores = (k["x"] * k["scale"]).masked_fill(k["mask"] != 0, -10000.0)
    return torch.softmax(scores, -1)


def torch_gradient(k: Arguments, torch: Any) -> Any:
    product = k["grad_output"] * k["y"]
    found = product - torch.sum(product, -1, keepdim=True) * k["y"]
    return (found * k["scale"]).masked_fill(k["mask"] != 0, 0.0)


SCALED_MASKED_SOFTMAX = Statement(
    "aclnnScaledMaskedSoftmax",
    (In("x", normal(3.0)), MASK),
    (Out("y", "x", "x"),),
    prototype="const aclTensor* x, const aclTensor* mask, double scale, bool fixTriuMask, "
    "aclTensor* y",
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=dtype_of("x"),
    torch=torch_says,
    empty_shapes=((0, 2, 3, 4), (2, 0, 3, 4), (2, 3, 0, 4)),
    edges=(
        Setup("rows", (1, 1, 5, 4), values={
            "x": [[[[0, 0, 0, 0], [1, NAN, 2, 3], [INF, 1, 2, 3], [300, -300, 1, 2],
                    [1, 2, 3, 4]]]],
            "mask": [[[[0, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]]],
        }),
        Setup("one-mask", shapes={"x": (2, 3, 2, 4), "mask": (1, 1, 2, 4)}),
        Setup("a-mask-each", shapes={"x": (2, 3, 2, 4), "mask": (2, 3, 2, 4)}),
    ),
    invalid=(
        *defects.nulls("x", "mask", "y"),
        *defects.dtypes("x", found=INT32),
        *defects.no_bfloat16("x"),
        *defects.dtypes("mask", found=INT8),
        *defects.dtypes("y", found=DOUBLE),
        *defects.dtypes("y", found=FLOAT16, blames=("x",)),
        *defects.shapes("x", (3, 3, 4), (1, 2, 3, 3, 4)),
        *defects.shapes("mask", (3, 3, 4), (1, 2, 3, 3, 4)),
        *defects.shapes("y", (3, 3, 4), (1, 2, 3, 3, 4)),
        *BAD_MASK[3:],
        *BAD_MASK[:3],
        of_all("no-columns", (1, 1, 1, 0), "x", "mask", "y"),
        of_all("4097-columns", (1, 1, 1, 4097), "x", "mask", "y", products=BEFORE_950),
        of_all("8193-columns", (1, 1, 1, 8193), "x", "mask", "y", products=ONLY_950),
        *defects.values("fix_triu_mask", *(True,)),
        *defects.shapes("y", (2, 3, 4, 3), (2, 3, 3, 5), status=TILING),
    ),
    **COMMON,
)  # fmt: skip

SCALED_MASKED_SOFTMAX_BACKWARD = Statement(
    "aclnnScaledMaskedSoftmaxBackward",
    (In("grad_output", normal(2.0)), In("y", shares), MASK),
    (Out("out", "grad_output", "grad_output"),),
    prototype="const aclTensor* gradOutput, const aclTensor* y, const aclTensor* mask, "
    "double scale, bool fixTriuMask, aclTensor* out",
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("grad_output"),
    torch=torch_gradient,
    faint=faint,
    empty_shapes=(),
    edges=(
        Setup("rows", (1, 1, 4, 4), values={
            "grad_output": [[[[1, 2, 3, 4], [1, NAN, 0, 0], [INF, 0, 0, 1], [300, -300, 1, 0]]]],
            "y": [[[[0.5, 0.25, 0.25, 0], [1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4]]],
            "mask": [[[[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 1, 1]]]],
        }),
        Setup("one-mask", shapes={**dict.fromkeys(("grad_output", "y"), (2, 3, 2, 4)),
                                  "mask": (1, 1, 2, 4)}),
    ),
    invalid=(
        *defects.nulls("grad_output", "y", "mask", "out"),
        *defects.dtypes("grad_output", "y", found=INT32),
        *defects.no_bfloat16("grad_output", "y"),
        *defects.dtypes("mask", found=INT8),
        *defects.dtypes("out", found=DOUBLE),
        *defects.formats("grad_output", "y", "mask", "out", products=BEFORE_950),
        *defects.shapes("grad_output", (3, 3, 4), (1, 2, 3, 3, 4)),
        of_all("4097-columns", (1, 1, 1, 4097), *GRADIENT, products=BEFORE_950),
        of_all("8193-columns", (1, 1, 1, 8193), *GRADIENT, products=ONLY_950),
        *defects.shapes("y", (2, 3, 4, 3), (2, 3, 3, 1), (3, 3, 4)),
        *defects.shapes("out", (2, 3, 4, 3), (2, 3, 3, 1), (3, 3, 4)),
        *defects.shapes("mask", (3, 3, 4), (1, 2, 3, 3, 4)),
        *BAD_MASK,
        *defects.values("fix_triu_mask", *(True,)),
        *defects.dtypes("y", "out", found=FLOAT16),
        of_all("no-rows", (0, 1, 1, 4), *GRADIENT, status=TILING),
    ),
    **COMMON,
)  # fmt: skip
