"""aclnnMoeTokenPermute and aclnnMoeTokenPermuteGrad [src:moe]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT32, INT64
from npucall.tensors import Shape
from npucall_conformance.statements import _routing as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import integers, normal
from npucall_conformance.stating.parts import Attributes, In, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement

NAN, INF = reals.NAN, reals.INFINITY


def kept(k: Arguments) -> int:
    every, wanted = k["indices"].size, k["num_out_tokens"]
    return len(range(every)[:wanted]) if wanted else every


def rows_shape(k: Arguments) -> Shape:
    return (kept(k), *k["tokens"].shape[1:])


def order_of(k: Arguments) -> list[int]:
    """The rows by their experts; those of one expert keep their order."""
    experts = shared.whole(k["indices"]).tolist()
    return sorted(range(len(experts)), key=lambda row: (experts[row], row))


def loops(k: Arguments) -> Any:
    tokens, order = k["tokens"].tolist(), order_of(k)
    each = k["indices"].size // len(tokens)
    places = [0] * len(order)
    for place, row in enumerate(order):
        places[row] = place
    rows = [tokens[row // each] for row in order[: kept(k)]]
    return {"permute_tokens_out": np.reshape(rows, rows_shape(k)), "sorted_indices_out": places}


def arrays(k: Arguments) -> dict[str, Terms]:
    experts = shared.whole(k["indices"])
    order = np.lexsort((np.arange(len(experts)), experts))
    rows = np.repeat(k["tokens"], k["indices"].size // len(k["tokens"]), 0)[order][: kept(k)]
    return {
        "permute_tokens_out": Terms(rows),
        "sorted_indices_out": Terms(np.argsort(order).astype(np.float64)),
    }


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"tokens": base, "indices": (base[0], 2)}


MOE_TOKEN_PERMUTE = Statement(
    "aclnnMoeTokenPermute",
    prototype=(
        "const aclTensor* tokens, const aclTensor* indices, int64_t numOutTokens, "
        "bool paddedMode, const aclTensor* permuteTokensOut, const aclTensor* sortedIndicesOut"
    ),
    defaults={"num_out_tokens": 0, "padded_mode": False},
    inputs=(
        In("tokens", normal(2.0)),
        In("indices", integers(0, 5), dtypes=(INT64, INT32)),
    ),
    outputs=(
        Out("permute_tokens_out", rows_shape, "tokens"),
        Out("sorted_indices_out", lambda k: (k["indices"].size,), lambda _: INT32, own=True),
    ),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=dtype_of("tokens"),
    cost=0.0,
    attributes={"num_out_tokens": (0, 3, -1), "padded_mode": (False,)},
    npu="torch_npu's own function npu_moe_token_permute calls it",
    **{**shared.COMMON, "rank_shapes": ((2, 1, 3), (1,) * 8)},
    edges=(
        Setup("numbers", (3, 2), values={
            "tokens": [[0.0, -0.0], [NAN, INF], [-INF, 1e-40]], "indices": [[3, 0], [0, 3], [3, 3]],
        }),
        Setup("one-expert", (4, 2), shapes={"indices": (4,)}),
    ),
    invalid=(
        *defects.nulls("tokens", "indices", "permute_tokens_out", "sorted_indices_out"),
        *defects.dtypes("tokens", found=INT32),
        *defects.dtypes("indices", found=FLOAT),
        *defects.dtypes("permute_tokens_out", found=FLOAT16),
        *defects.dtypes("sorted_indices_out", found=INT64),
        *defects.values("padded_mode", True),  # noqa: FBT003
        *defects.late(
            *defects.shapes("tokens", (3,), block="rank"),
            *defects.ranks("tokens"),
            *defects.shapes("indices", (3, 2, 1), (), block="rank"),
            *defects.shapes("tokens", (3, 0)),
            *defects.shapes("indices", (3, 0)),
            *defects.shapes("indices", (4, 2)),
            *defects.shapes("indices", (3, 513)),
            *defects.values("num_out_tokens", -6),
            *defects.shapes("permute_tokens_out", (5, 4), (6, 3), (24,)),
            *defects.shapes("sorted_indices_out", (3, 2), (5,)),
        ),
    ),
)  # fmt: skip


def grad_shape(k: Arguments) -> Shape:
    return (k["sorted_indices"].size // k["num_topk"], k["permuted_output_grad"].shape[1])


def grad_loops(k: Arguments) -> Any:
    rows, experts = k["permuted_output_grad"].tolist(), k["num_topk"]
    places = shared.whole(k["sorted_indices"]).tolist()
    found = []
    for token in range(len(places) // experts):
        own = places[token * experts : (token + 1) * experts]
        own = [rows[place] for place in own if place < len(rows)]
        columns = zip(*own, strict=True) if own else [()] * grad_shape(k)[1]
        found.append([reals.total(list(column)) for column in columns])
    return np.reshape(found, grad_shape(k))


def grad_arrays(k: Arguments) -> Terms:
    places, rows = shared.whole(k["sorted_indices"]), k["permuted_output_grad"]
    padded = np.zeros((len(places), rows.shape[1]))
    padded[: len(rows)] = rows
    found = padded[places].reshape(-1, k["num_topk"], rows.shape[1])
    return Terms(found.sum(1), np.abs(found).sum(1), summed=k["num_topk"])


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    count = base[0] * attributes["num_topk"]
    return {"permuted_output_grad": (count, base[1]), "sorted_indices": (count,)}


def torch_says(k: Arguments, _: Any) -> Any:
    rows, places = k["permuted_output_grad"], k["sorted_indices"].long()
    if len(rows) < len(places):
        return None  # rows were dropped
    return rows[places].reshape(-1, k["num_topk"], rows.shape[1]).sum(1)


MOE_TOKEN_PERMUTE_GRAD = Statement(
    "aclnnMoeTokenPermuteGrad",
    prototype=(
        "const aclTensor* permutedOutputGrad, const aclTensor* sortedIndices, int64_t numTopk, "
        "bool paddedMode, aclTensor* out"
    ),
    defaults={"padded_mode": False},
    inputs=(In("permuted_output_grad", normal()), shared.SORTED),
    outputs=(Out("out", grad_shape, "permuted_output_grad"),),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("permuted_output_grad"),
    attributes={"num_topk": (2, 1, 3), "padded_mode": (False,)},
    npu="torch_npu calls it in the gradient of npu_moe_token_permute",
    torch=torch_says,
    **shared.COMMON,
    edges=(
        Setup("dropped", shapes={"permuted_output_grad": (5, 3), "sorted_indices": (12,)}),
        Setup("numbers", attributes={"num_topk": 2}, values={
            "permuted_output_grad": [[INF], [-INF], [NAN], [1.0], [2.0], [INF]],
            "sorted_indices": [0, 1, 2, 3, 4, 5]}),
    ),
    invalid=(
        *defects.nulls("permuted_output_grad", "sorted_indices", "out"),
        *defects.dtypes("permuted_output_grad", found=DOUBLE),
        *defects.dtypes("sorted_indices", found=INT64),
        *defects.dtypes("out", found=FLOAT16),
        *defects.values("padded_mode", True),  # noqa: FBT003
        *defects.late(
            *defects.shapes("permuted_output_grad", (6,), (6, 4, 1), block="rank"),
            *defects.shapes("permuted_output_grad", (6, 0)),
            *defects.shapes("sorted_indices", (6, 1), block="rank"),
            *defects.shapes("sorted_indices", (0,)),
            *defects.values("num_topk", 0, 513),
            *defects.values("num_topk", 4),
            *defects.shapes("permuted_output_grad", (7, 4)),
            *defects.shapes("out", (6, 4), (3, 3)),
        ),
        *shared.beyond("sorted_indices", (6,), 6, -1),
    ),
)  # fmt: skip
