"""aclnnGluBackward [src:glu]."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT16, FLOATS, INT32
from npucall.tensors import Shape
from npucall_conformance.statements.glu import even, opened
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE

NAN, INF = reals.NAN, reals.INFINITY


def row(_: Arguments, upstream: list[float], inputs: list[float]) -> list[float]:
    half = len(upstream)
    first, second = [], []
    for g, a, b in zip(upstream, inputs[:half], inputs[half:], strict=True):
        first.append(g * reals.sigmoid(b))
        second.append(g * a * (reals.sigmoid(b) * reals.sigmoid(-b)))
    return first + second


def vector(_: Arguments, g: Any, x: Any) -> Any:
    half = g.shape[-1]
    a, b = x[..., :half], x[..., half:]
    less = np.exp(-np.abs(b))
    slope = less / (1 + less) ** 2 * a
    return np.concatenate((g * opened(b), g * slope), axis=-1)


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    halved = list(base)
    halved[attributes["dim"]] //= 2
    return {"grad_out": tuple(halved), "self": base}


def halves(*rows: tuple[float, float, float]) -> Setup:
    """One row of rank 1 from gradients, values and gates."""
    g, a, b = zip(*rows, strict=True)
    return Setup(base=(2 * len(g),), values={"grad_out": g, "self": (*a, *b)})


GLU_BACKWARD = rowwise(
    "aclnnGluBackward",
    prototype="const aclTensor* gradOut, const aclTensor* self, int64_t dim, const aclTensor* out",
    takes=FLOATS_AND_DOUBLE,
    defaults={"dim": -1},
    inputs=(In("grad_out", normal()), In("self", normal(3.0))),
    output=Out("out", shape="self", dtype="self"),
    row=row,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE),
    kernel=dtype_of("self"),
    shapes=shapes,
    attributes={"dim": (-1, 0, lambda base: len(base) // 2)},
    base_shapes=((4, 6), (2, 6, 8), (18,), (2, 3, 4, 6)),
    large_shape=(338, 306),
    layout_shape=(4, 6),
    rank_shapes=((6,), (2, 1, 3, 1, 2, 2, 1, 2), (2, 1, 1, 1, 2, 1, 1, 2)),
    empty_shapes=((0,), (0, 4), (2, 0), (2, 0, 4), (0, 0)),
    sized=lambda count: (count + count % 2,),
    fitted=even,
    npu=aten("glu_backward", "grad_out", "self", "dim"),
    torch=lambda k, torch: torch.ops.aten.glu_backward(k["grad_out"], k["self"], k["dim"]),
    edges=(
        halves(
            *product((1.0, 0.0, -2.0, INF, NAN), (0.0, -0.0, 1.5, INF, NAN), (0.0, 2.0, INF, NAN)),
            *product((1.0, -2.0), (1.5, INF), (-2.0, -INF)),
            *product((1.0, -2.0, 0.0), (1.5, 300.0, 0.0), (12.0, -12.0, 89.0, -89.0, 1e4, -1e4)),
        ),
    ),
    invalid=(
        *defects.nulls("self", "grad_out", "out"),
        *defects.dtypes("self", found=INT32),
        *defects.no_bfloat16("self"),
        *defects.dtypes("grad_out", "out", found=FLOAT16),
        *defects.ranks("self", "out", "grad_out"),
        *defects.shapes("self", ()),
        *defects.values("dim", 2, -3),
        *defects.shapes("self", (4, 7), blames=("self", "dim")),
        *defects.shapes("grad_out", (4, 6), (2, 6), (3,), (1, 4, 3)),
        *defects.shapes("out", (6, 4), (4, 3), (1, 4, 6)),
    ),
)  # fmt: skip
