"""aclnnGlu [src:glu]."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOATS, INT32
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import In, Out, Setup, mixed_floats
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.rowwise import rowwise
from npucall_conformance.stating.tables import FLOATS_AND_DOUBLE

NAN, INF = reals.NAN, reals.INFINITY
VALUES = (0.0, -0.0, 1.5, -300.0, INF, -INF, NAN)


def row(_: Arguments, x: list[float]) -> list[float]:
    half = len(x) // 2
    return [a * reals.sigmoid(b) for a, b in zip(x[:half], x[half:], strict=True)]


def opened(gates: Any) -> Any:
    """The sigmoid, computed so that it overflows on neither side."""
    less = np.exp(-np.abs(gates))
    return np.where(gates < 0, less, 1.0) / (1 + less)


def vector(_: Arguments, x: Any) -> Any:
    half = x.shape[-1] // 2
    return opened(x[..., half:]) * x[..., :half]


def halved(k: Arguments) -> Shape:
    shape = list(k["self"].shape)
    shape[k["dim"]] //= 2
    return tuple(shape)


def even(base: Shape) -> Shape:
    return tuple(extent + extent % 2 for extent in base)


def halves(*rows: tuple[float, ...], **more: Any) -> Setup:
    """One row of rank 1 from values and gates."""
    values, gates = zip(*rows, strict=True)
    return Setup(base=(2 * len(values),), values={"self": (*values, *gates)}, **more)


GLU = rowwise(
    "aclnnGlu",
    prototype="const aclTensor* self, int64_t dim, const aclTensor* out",
    takes=FLOATS_AND_DOUBLE,
    defaults={"dim": -1},
    inputs=(In("self", normal(3.0)),),
    output=Out("out", shape=halved, dtype="self"),
    row=row,
    vector=vector,
    dtypes=(*FLOATS, DOUBLE),
    kernel=dtype_of("self"),
    attributes={"dim": (-1, 0, lambda base: len(base) // 2)},
    base_shapes=((4, 6), (2, 6, 8), (18,), (2, 3, 4, 6)),
    large_shape=(338, 306),
    layout_shape=(4, 6),
    rank_shapes=((6,), (2, 1, 3, 1, 2, 2, 1, 2), (2, 1, 1, 1, 2, 1, 1, 2)),
    empty_shapes=((0,), (0, 4), (2, 0), (2, 0, 4), (0, 0)),
    sized=lambda count: (count + count % 2,),
    fitted=even,
    npu=aten("glu", "self", "dim"),
    torch=lambda k, torch: torch.nn.functional.glu(k["self"], k["dim"]),
    mixed=(
        *mixed_floats("self", output="out"),
        *(Setup(dtypes={"self": each, "out": DOUBLE}) for each in FLOATS),
        *(Setup(dtypes={"self": DOUBLE, "out": each}) for each in FLOATS),
    ),
    edges=(
        halves(
            *product(VALUES, (0.0, -0.0, 2.0, -2.0, 12.0, INF, -INF, NAN)),
            *product(VALUES[:4], (-12.0, 89.0, -80.0, 1e4, -1e4)),
        ),
    ),
    invalid=(
        *defects.nulls("self", "out"),
        *defects.dtypes("self", "out", found=INT32),
        *defects.no_bfloat16("self", "out"),
        *defects.ranks("self", "out"),
        *defects.shapes("self", ()),
        *defects.values("dim", 2, -3),
        *defects.shapes("self", (4, 7), blames=("self", "dim")),
        *defects.shapes("out", (4, 6), (2, 6), (3,), (1, 4, 3)),
    ),
)  # fmt: skip
