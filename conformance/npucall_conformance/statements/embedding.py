"""aclnnEmbedding and aclnnEmbeddingDenseBackward [src:embedding]."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from npucall.dtypes import (
    BF16,
    COMPLEX64,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT16,
)
from npucall.errors import ArgumentError, ShapeError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import integers, normal
from npucall_conformance.stating.npu import aten
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import (
    ARITHMETIC,
    FLOATS_WITH_BFLOAT16,
    everywhere,
    on,
)
from npucall_conformance.stating.written import WrittenCall, of

NAN, INF = reals.NAN, reals.INFINITY
ROWS, WIDTH = 7, 5
NO_ROW = 2**64 - 1
INDICES = integers(0, ROWS - 1)
COMMON: dict[str, Any] = {
    "base_shapes": ((4,), (3, 5), (2, 3, 4), (29,)),
    "layout_shape": (3, 4),
    "rank_shapes": ((), (1,), (1,) * 7, (2, 1, 3, 1, 1, 2, 1)),
    "empty_shapes": ((0,), (2, 0)),
    "sized": lambda count: (max(count // WIDTH, 1),),
    "large_shape": (331, 83),
    "large": (Setup("many-rows", (30_021,)), Setup("long-rows", (3, 9_011))),
    "chunked": (230_000,),
    "cost": 0.0,
}


def shape(k: Arguments) -> Shape:
    return (*k["indices"].shape, k["weight"].shape[-1])


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"weight": (ROWS, WIDTH), "indices": base}


def loops(k: Arguments) -> Any:
    rows = k["weight"].tolist()
    found = [rows[int(i)] for i in k["indices"].reshape(-1).tolist()]
    return np.reshape(np.array(found, k["weight"].dtype), shape(k))


def arrays(k: Arguments) -> Terms:
    return Terms(np.take(k["weight"], k["indices"].astype(np.int64), axis=0))


def beyond(*found: int) -> tuple[Invalid, ...]:
    """Indices that are no rows."""
    return tuple(
        Invalid(f"index-{index}", {"indices": {"values": [[index, 0, 1, 2]] * 3}}, ("indices",),
                ArgumentError)
        for index in found
    )  # fmt: skip


EMBEDDING = Statement(
    "aclnnEmbedding",
    prototype="const aclTensor* weight, const aclTensor* indices, const aclTensor* out",
    takes=everywhere(*ARITHMETIC),
    legacy=(),
    inputs=(In("weight", normal(2.0)), In("indices", INDICES, dtypes=(INT64, INT32))),
    outputs=(Out("out", shape, "weight"),),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    dtypes=(*FLOATS, DOUBLE),
    kernel=dtype_of("weight"),
    npu=aten("embedding", "weight", "indices"),
    torch=lambda k, torch: torch.nn.functional.embedding(k["indices"].long(), k["weight"]),
    **COMMON,
    edges=(
        Setup("numbers", (9,), values={
            "weight": [[0.0], [-0.0], [NAN], [INF], [-INF], [3e38], [1e-40]],
            "indices": [6, 5, 4, 3, 2, 1, 0, 0, 6],
        }),
    ),
    written=(
        WrittenCall("integers", {"weight": of(INT8, -128, 127, 3, 4, shape=(2, 2)),
                                 "indices": of(INT64, 1, 0)}, (of(INT8, 3, 4, -128, 127,
                                                                  shape=(2, 2)),)),
        WrittenCall("of-64-bits", {"weight": of(INT64, 2**62 + 1, 5, shape=(2, 1)),
                                   "indices": of(INT32, 0, shape=())},
                    (of(INT64, 2**62 + 1),)),
        WrittenCall("complex", {"weight": of(COMPLEX64, 1 - 2j, 3j, shape=(2, 1)),
                                "indices": of(INT64, 1)}, (of(COMPLEX64, 3j, shape=(1, 1)),)),
    ),
    invalid=(
        *defects.nulls("weight", "indices", "out"),
        *defects.dtypes("weight", found=UINT16),
        *defects.no_bfloat16("weight"),
        *defects.dtypes("out", found=FLOAT16),
        *defects.dtypes("indices", found=FLOAT),
        *defects.dtypes("indices", found=UINT8),
        *defects.ranks("weight", "indices", "out"),
        *defects.shapes("weight", (5,), (7, 5, 1), ()),
        *defects.shapes("out", (3, 4), (3, 4, 4), (12, 5)),
        Invalid("no-rows", {"weight": {"shape": (0, 5)}}, ("weight",), ShapeError),
        *beyond(7, -1),
    ),
    empty_spares=("no-rows", "index-"),
)  # fmt: skip


def table(k: Arguments) -> Shape:
    return (k["num_weights"], k["grad"].shape[-1])


def grad_shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"grad": (*base, WIDTH), "indices": base}


def rows_of(k: Arguments) -> tuple[Any, Any]:
    count = math.prod(k["grad"].shape[:-1])
    return k["grad"].reshape(count, k["grad"].shape[-1]), np.trunc(k["indices"].reshape(-1)).astype(
        np.int64
    )


def grad_loops(k: Arguments) -> Any:
    grad, places = rows_of(k)
    added: list[list[list[float]]] = [[] for _ in range(k["num_weights"])]
    for row, place in zip(grad.tolist(), places.tolist(), strict=True):
        added[place].append(row)
    found = []
    for number, rows in enumerate(added):
        divisor = len(rows) if k["scale_grad_by_freq"] and rows else 1
        skipped = number == k["padding_idx"] or not rows
        columns = zip(*rows, strict=True) if not skipped else [()] * grad.shape[1]
        found.append([reals.total(list(column)) / divisor for column in columns])
    return np.reshape(found, table(k))


def grad_arrays(k: Arguments) -> Terms:
    grad, places = rows_of(k)
    hit = places == np.arange(k["num_weights"])[:, np.newaxis]
    hit &= np.arange(k["num_weights"])[:, np.newaxis] != k["padding_idx"]
    counts = np.maximum(hit.sum(1), 1) if k["scale_grad_by_freq"] else np.ones(len(hit))
    value, size = np.zeros(table(k)), np.zeros(table(k))
    for number, mask in enumerate(hit):
        value[number] = grad[mask].sum(0) / counts[number]
        size[number] = np.abs(grad[mask]).sum(0) / counts[number]
    return Terms(value, size, summed=int(max(hit.sum(1).max(initial=1), 1)))


def torch_says(k: Arguments, torch: Any) -> Any:
    padding = -1 if k["padding_idx"] >= k["num_weights"] else k["padding_idx"]
    return torch.ops.aten.embedding_dense_backward(
        k["grad"], k["indices"].long(), k["num_weights"], padding, k["scale_grad_by_freq"]
    )


EMBEDDING_DENSE_BACKWARD = Statement(
    "aclnnEmbeddingDenseBackward",
    prototype=(
        "const aclTensor* grad, const aclTensor* indices, uint64_t numWeights, "
        "uint64_t paddingIdx, bool scaleGradByFreq, const aclTensor* out"
    ),
    takes={**FLOATS_WITH_BFLOAT16, **on(("Ascend910",), FLOAT, FLOAT16)},
    legacy=(),
    defaults={"padding_idx": NO_ROW, "scale_grad_by_freq": False},
    inputs=(
        In("grad", normal()),
        In("indices", INDICES, dtypes=(INT64, INT32, UINT8, FLOAT)),
    ),
    outputs=(Out("out", table, "grad"),),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("grad"),
    attributes={
        "num_weights": (ROWS, ROWS + 2),
        "padding_idx": (NO_ROW, 3),
        "scale_grad_by_freq": (False, True),
    },
    npu=aten("embedding_dense_backward", "grad", "indices", "num_weights", "padding_idx",
             "scale_grad_by_freq"),
    torch=torch_says,
    **{**COMMON, "cost": 32.0},
    mixed=tuple(Setup(dtypes={"grad": one, "out": other}) for one in FLOATS for other in FLOATS),
    edges=(
        Setup("one-index", (200,), values={"indices": np.full(200, 2.0)}),
        Setup("numbers", (4,), values={
            "grad": [[INF], [-INF], [NAN], [1.0]], "indices": np.array([0.0, 0, 1, 3])}),
        Setup("cut", (3,), values={"indices": np.array([0.75, 1.5, 6.99])},
              dtypes={"indices": FLOAT}, only=(FLOAT,)),
    ),
    invalid=(
        *defects.nulls("grad", "indices", "out"),
        *defects.dtypes("grad", found=DOUBLE),
        *defects.no_bfloat16("grad"),
        *defects.dtypes("indices", found=BF16),
        *defects.dtypes("out", found=DOUBLE),
        *defects.ranks("grad", "indices", "out"),
        *defects.shapes("grad", (4, 4, 5), (), blames=("grad", "indices")),
        *defects.shapes("indices", (11,), blames=("grad", "indices")),
        *defects.shapes("out", (7, 4), (7,), (8, 5), (1, 7, 5)),
        *defects.formats("grad", "indices", "out"),
        *beyond(7, -1),
    ),
    empty_spares=("index-",),
)  # fmt: skip
