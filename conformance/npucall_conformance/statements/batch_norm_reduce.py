"""aclnnBatchNormReduce [src:sync-batch-norm]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import FLOAT, FLOAT16, FLOATS, INT32
from npucall.tensors import Format, Shape
from npucall_conformance.statements.batch_norm import channels
from npucall_conformance.statements.sync_batch_norm import NEW, NO_TORCH
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal
from npucall_conformance.stating.parts import In, Out, Setup
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import on

NAN, INF = reals.NAN, reals.INFINITY


def rows(k: Arguments) -> tuple[list[list[float]], Any]:
    found = channels(Arguments({"input": k["x"]}, {}), "input")
    return found.tolist(), found


def reduce_loops(k: Arguments) -> dict[str, Any]:
    found, _ = rows(k)
    return {"sum": [reals.total(row) for row in found],
            "square_sum": [reals.total([x * x for x in row]) for row in found]}  # fmt: skip


def reduce_arrays(k: Arguments) -> dict[str, Terms]:
    _, x = rows(k)
    length = max(x.shape[1], 1)
    return {"sum": Terms(x.sum(1), np.abs(x).sum(1), summed=length),
            "square_sum": Terms((x * x).sum(1), (x * x).sum(1), summed=length)}  # fmt: skip


def reduce_torch(k: Arguments, torch: Any) -> Any:
    del torch
    return {"sum": k["x"].sum((0, 2, 3)), "square_sum": (k["x"] ** 2).sum((0, 2, 3))}


def reduced(k: Arguments) -> Shape:
    return tuple(k["x"].shape[1:2])


BATCH_NORM_REDUCE = Statement(
    "aclnnBatchNormReduce",
    prototype="const aclTensor* x, aclTensor* sum, aclTensor* squareSum",
    takes=on(NEW, *FLOATS),
    legacy=(),
    inputs=(In("x", normal(2.0, 0.5)),),
    outputs=tuple(Out(name, reduced, lambda _: FLOAT) for name in ("sum", "square_sum")),
    loops=reduce_loops,
    arrays=reduce_arrays,
    npu=NO_TORCH,
    torch=reduce_torch,
    base_shapes=((2, 3, 4, 5), (4, 2, 3, 2)),
    layout_shape=(2, 3, 2, 4),
    rank_shapes=((1, 3, 1, 1),),
    empty_shapes=((0, 3, 2, 4), (2, 3, 0, 4)),
    sized=lambda size: (max(size // 32, 1), 4, 2, 4),
    fitted=lambda base: base,
    large_shape=(31, 17, 14, 14),
    large=(Setup("many-rows", (12_301, 2, 2, 2)), Setup("long-rows", (1, 3, 33_011, 1)),
           Setup("one-row", (100_003, 1, 1, 1))),
    edges=(Setup("channels", (2, 3, 1, 2), values={
        "x": [[[[0.0, NAN]], [[INF, 1e4]], [[1, 2]]], [[[1, 1]], [[1, -1e4]], [[0, 2]]]]}),),
    empty_before="dtype-int32-x",
    invalid=(
        *defects.nulls("x", "sum", "square_sum"),
        *defects.dtypes("x", found=INT32),
        *defects.dtypes("sum", "square_sum", found=FLOAT16),
        *defects.formats("x", found=Format.NHWC),
        *defects.formats("sum", "square_sum", found=Format.NCHW),
        *defects.shapes("x", (2, 3, 8), (1, 2, 3, 2, 4)),
        *(row for name in ("sum", "square_sum") for row in defects.shapes(name, (4,), (1, 3))),
    ),
)  # fmt: skip
