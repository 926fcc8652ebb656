"""aclnnMoeTokenUnpermute and aclnnMoeTokenUnpermuteGrad [src:moe]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT16, FLOATS, INT32, INT64
from npucall.errors import ShapeError
from npucall.tensors import Shape
from npucall_conformance.statements import _routing as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement

NAN, INF = reals.NAN, reals.INFINITY
PROBS = In("probs", uniform(0.1, 1.0), optional=True, own=True)
ATTRIBUTES: dict[str, Any] = {
    "defaults": {"padded_mode": False, "restore_shape": None},
    "attributes": {"padded_mode": (False,), "restore_shape": (None, (3, 4))},
}


def factors(k: Arguments) -> Any:
    """One for each place."""
    given = k["probs"]
    return np.ones(k["sorted_indices"].size) if given is None else given.reshape(-1)


def factors_shape(k: Arguments) -> Shape:
    return () if k["probs"] is None else tuple(k["probs"].shape)


def experts(k: Arguments) -> int:
    return 1 if k["probs"] is None else int(k["probs"].shape[1])


def shape(k: Arguments) -> Shape:
    return (k["sorted_indices"].size // experts(k), k["permuted_tokens"].shape[1])


def loops(k: Arguments) -> Any:
    rows, places = k["permuted_tokens"].tolist(), shared.whole(k["sorted_indices"]).tolist()
    count, weights, found = experts(k), factors(k).tolist(), []
    for token in range(shape(k)[0]):
        own = range(token * count, (token + 1) * count)
        found.append([
            reals.total([rows[places[i]][column] * weights[i] for i in own])
            for column in range(shape(k)[1])
        ])  # fmt: skip
    return np.reshape(found, shape(k))


def arrays(k: Arguments) -> Terms:
    rows = k["permuted_tokens"][shared.whole(k["sorted_indices"])]
    terms = (rows * factors(k)[:, np.newaxis]).reshape(shape(k)[0], experts(k), shape(k)[1])
    return Terms(terms.sum(1), np.abs(terms).sum(1), summed=experts(k))


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    """Two experts of each token; without factors these are as many tokens of one."""
    count = 2 * base[0]
    return {
        "permuted_tokens": (count, base[1]),
        "sorted_indices": (count,),
        "probs": (base[0], 2),
    }


def torch_says(k: Arguments, torch: Any) -> Any:
    rows = k["permuted_tokens"][k["sorted_indices"].long()]
    if k["probs"] is None:
        return rows
    return (rows.reshape(*k["probs"].shape, -1) * k["probs"].unsqueeze(-1)).sum(1)


OF_PROBS = tuple(
    Setup(dtypes={"permuted_tokens": one, "probs": other})
    for one in FLOATS
    for other in FLOATS
    if one is not other
)


def refused(count: int) -> tuple[Invalid, ...]:
    """What both refuse, of so many rows, in calls of two experts or one."""
    return (
        *defects.values("padded_mode", True),  # noqa: FBT003
        *defects.late(
            *defects.shapes("permuted_tokens", (count,), (count, 4, 1), block="rank"),
            *defects.shapes("permuted_tokens", (count, 0)),
            *defects.shapes("sorted_indices", (count, 1), block="rank"),
            *defects.shapes("sorted_indices", (0,)),
            *defects.shapes("probs", (count,), block="rank"),
            *defects.shapes("probs", (3, 0)),
            *defects.shapes("probs", (3, 3)),
            Invalid("many-experts", {"probs": {"shape": (1, 513)}, "sorted_indices":
                    {"shape": (513,)}}, ("probs",), ShapeError),
            *defects.shapes("permuted_tokens", (7, 4), blames=("sorted_indices",)),
        ),
    )  # fmt: skip


MOE_TOKEN_UNPERMUTE = Statement(
    "aclnnMoeTokenUnpermute",
    prototype=(
        "const aclTensor* permutedTokens, const aclTensor* sortedIndices, "
        "const aclTensor* probsOptional, bool paddedMode, "
        "const aclIntArray* restoreShapeOptional, aclTensor* out"
    ),
    inputs=(In("permuted_tokens", normal()), shared.SORTED, PROBS),
    outputs=(Out("out", shape, "permuted_tokens"),),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=dtype_of("permuted_tokens"),
    npu="torch_npu's own function npu_moe_token_unpermute calls it",
    torch=torch_says,
    **ATTRIBUTES,
    **shared.COMMON,
    mixed=OF_PROBS,
    edges=(
        Setup("many-experts", shapes={"permuted_tokens": (600, 3), "sorted_indices": (600,),
                                      "probs": (2, 300)}),
        Setup("numbers", values={
            "permuted_tokens": [[INF], [-INF], [NAN], [1.0]], "sorted_indices": [0, 1, 2, 3],
            "probs": [[1.0, 1.0], [0.0, 2.0]]}),
    ),
    invalid=(
        *defects.nulls("permuted_tokens", "sorted_indices", "out"),
        *defects.dtypes("permuted_tokens", found=INT32),
        *defects.dtypes("sorted_indices", found=INT64),
        *defects.dtypes("probs", found=DOUBLE),
        *defects.dtypes("out", found=FLOAT16),
        *refused(6),
        *defects.late(*defects.shapes("out", (4, 3), (12,))),
        *shared.beyond("sorted_indices", (6,), 6, -1),
    ),
)  # fmt: skip


def grad_loops(k: Arguments) -> Any:
    rows, grad = k["permuted_tokens"].tolist(), k["unpermuted_tokens_grad"].tolist()
    places, weights = shared.whole(k["sorted_indices"]).tolist(), factors(k).tolist()
    of_rows = [[0.0] * len(row) for row in rows]
    of_probs = []
    for i, place in enumerate(places):
        token = grad[i // experts(k)]
        of_rows[place] = [x * weights[i] for x in token]
        of_probs.append(reals.total([x * y for x, y in zip(rows[place], token, strict=True)]))
    found = {"permuted_tokens_grad_out": np.reshape(of_rows, k["permuted_tokens"].shape)}
    return found if k["probs"] is None else {
        **found, "probs_grad_out": np.reshape(of_probs, k["probs"].shape)
    }  # fmt: skip


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    places = shared.whole(k["sorted_indices"])
    tokens = np.repeat(k["unpermuted_tokens_grad"], experts(k), 0)
    of_rows = np.zeros(k["permuted_tokens"].shape)
    of_rows[places] = tokens * factors(k)[:, np.newaxis]
    found = {"permuted_tokens_grad_out": Terms(of_rows)}
    if k["probs"] is not None:
        terms = k["permuted_tokens"][places] * tokens
        sums, sizes = (each.sum(1).reshape(k["probs"].shape) for each in (terms, np.abs(terms)))
        found["probs_grad_out"] = Terms(sums, sizes, summed=terms.shape[1])
    return found


def grad_shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    """One expert of each token, as without factors."""
    return {
        **dict.fromkeys(("permuted_tokens", "unpermuted_tokens_grad"), base),
        "sorted_indices": base[:1],
        "probs": (base[0], 1),
    }


MOE_TOKEN_UNPERMUTE_GRAD = Statement(
    "aclnnMoeTokenUnpermuteGrad",
    prototype=(
        "const aclTensor* permutedTokens, const aclTensor* unpermutedTokensGrad, "
        "const aclTensor* sortedIndices, const aclTensor* probsOptional, bool paddedMode, "
        "const aclIntArray* restoreShapeOptional, aclTensor* permutedTokensGradOut, "
        "aclTensor* probsGradOut"
    ),
    inputs=(
        In("permuted_tokens", normal()),
        In("unpermuted_tokens_grad", normal()),
        shared.SORTED,
        PROBS,
    ),
    outputs=(
        Out("permuted_tokens_grad_out", "permuted_tokens", "permuted_tokens"),
        Out("probs_grad_out", factors_shape, dtype_of("probs", "permuted_tokens"), own=True,
            asked=lambda k: k["probs"] is not None),
    ),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("permuted_tokens"),
    npu="torch_npu calls it in the gradient of npu_moe_token_unpermute",
    **ATTRIBUTES,
    **shared.COMMON,
    edges=(
        Setup("experts", shapes={
            "permuted_tokens": (12, 3), "unpermuted_tokens_grad": (4, 3),
            "sorted_indices": (12,), "probs": (4, 3)}),
        Setup("numbers", values={
            "permuted_tokens": [[INF], [-INF], [NAN], [1.0]], "sorted_indices": [0, 1, 2, 3],
            "unpermuted_tokens_grad": [[1.0], [INF]], "probs": [[1.0, 1.0], [0.0, 2.0]]}),
    ),
    mixed=tuple(
        Setup(dtypes={"permuted_tokens": one, "unpermuted_tokens_grad": one, "probs": other})
        for one in FLOATS for other in FLOATS if one is not other
    ),
    invalid=(
        *defects.nulls("permuted_tokens", "unpermuted_tokens_grad", "sorted_indices",
                       "permuted_tokens_grad_out"),
        *defects.dtypes("permuted_tokens", found=INT32),
        *defects.dtypes("unpermuted_tokens_grad", found=BF16),
        *defects.dtypes("sorted_indices", found=INT64),
        *defects.dtypes("probs", found=DOUBLE),
        *defects.dtypes("permuted_tokens_grad_out", "probs_grad_out", found=FLOAT16),
        *refused(3),
        *defects.late(
            *defects.shapes("unpermuted_tokens_grad", (4, 4), (3, 3), (12,)),
            *defects.shapes("permuted_tokens_grad_out", (4, 3), (12,)),
            *defects.shapes("probs_grad_out", (1, 3), (3,)),
        ),
        *shared.beyond("sorted_indices", (3,), 3, -1),
    ),
)  # fmt: skip
