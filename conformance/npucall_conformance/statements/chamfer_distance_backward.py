"""aclnnChamferDistanceBackward [src:chamfer]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, FLOAT, FLOAT16, INT32, INT64
from npucall.errors import ArgumentError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import WITH_BFLOAT16, on

POINTS, INDICES = ("xyz1", "xyz2"), ("idx1", "idx2")
DISTANCES, OUTPUTS = ("grad_dist1", "grad_dist2"), ("grad_xyz1", "grad_xyz2")


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {**dict.fromkeys(POINTS, base), **dict.fromkeys((*INDICES, *DISTANCES), base[:-1])}


def nearest(draw: Draw) -> Any:
    return draw.random.integers(0, max(draw.shape[-1], 1), draw.shape)


def loops(k: Arguments) -> dict[str, Any]:
    extents = k["xyz1"].shape
    terms: list[dict[tuple[int, int, int], list[float]]] = [{}, {}]
    for side in (0, 1):
        points, others = (k[name].tolist() for name in (POINTS, POINTS[::-1])[side])
        index, grads = (k[name].tolist() for name in (INDICES[side], DISTANCES[side]))
        for b, i in np.ndindex(*extents[:2]):
            place, g = int(index[b][i]), grads[b][i]
            for axis in range(2):
                pull = 2 * g * (points[b][i][axis] - others[b][place][axis])
                terms[side].setdefault((b, i, axis), []).append(pull)
                terms[1 - side].setdefault((b, place, axis), []).append(-pull)
    found = [np.zeros(extents), np.zeros(extents)]
    for own, every in zip(found, terms, strict=True):
        for element, some in every.items():
            own[element] = reals.total(some)
    return dict(zip(OUTPUTS, found, strict=True))


def arrays(k: Arguments) -> dict[str, Terms]:
    batch = np.arange(k["xyz1"].shape[0])[:, np.newaxis]
    own, other = (k[name] for name in POINTS)
    one, two = (k[name].astype(np.int64) for name in INDICES)
    pulls = (
        (own - other[batch, one]) * k["grad_dist1"][..., np.newaxis] * 2,
        (other - own[batch, two]) * k["grad_dist2"][..., np.newaxis] * 2,
    )
    answers = []
    for pull, back, index in ((pulls[0], pulls[1], two), (pulls[1], pulls[0], one)):
        value, size = pull.copy(), np.abs(pull)
        np.add.at(value, (batch, index), -back)
        np.add.at(size, (batch, index), np.abs(back))
        most = max(np.bincount(index.reshape(-1)).max(initial=0), 1)
        answers.append(Terms(value, size, summed=int(most) + 1))
    return dict(zip(OUTPUTS, answers, strict=True))


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["xyz1"].numel():
        return None
    one, two = (k[name].detach().clone().requires_grad_() for name in POINTS)
    near = [k[n].long().unsqueeze(-1).expand_as(one) for n in INDICES]
    squares = (one - two.gather(1, near[0])).square().sum(-1)
    others = (two - one.gather(1, near[1])).square().sum(-1)
    loss = (squares * k["grad_dist1"]).sum() + (others * k["grad_dist2"]).sum()
    return dict(zip(OUTPUTS, torch.autograd.grad(loss, (one, two)), strict=True))


def beyond(name: str, value: int) -> Invalid:
    row = [[value, 0, 0], [0, 0, 0]]
    return Invalid(f"{name}-{value}", {name: {"values": row}}, (name,), ArgumentError)


CHAMFER_DISTANCE_BACKWARD = Statement(
    "aclnnChamferDistanceBackward",
    prototype=(
        "const aclTensor* xyz1, const aclTensor* xyz2, const aclTensor* idx1, "
        "const aclTensor* idx2, const aclTensor* gradDist1, const aclTensor* gradDist2, "
        "aclTensor* gradXyz1, aclTensor* gradXyz2"
    ),
    takes=on(WITH_BFLOAT16, FLOAT, FLOAT16),
    legacy=(),
    dtypes=(FLOAT, FLOAT16),
    inputs=(
        *(In(name, normal()) for name in POINTS),
        *(In(name, nearest, dtypes=(INT32,)) for name in INDICES),
        *(In(name, normal()) for name in DISTANCES),
    ),
    outputs=tuple(Out(name, "xyz1", "xyz1") for name in OUTPUTS),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    npu="torch_npu has no function for it",
    torch=torch_says,
    base_shapes=((2, 4, 2), (3, 7, 2), (1, 1, 2), (1, 17, 2)),
    layout_shape=(2, 3, 2),
    rank_shapes=((1, 1, 2),),
    empty_shapes=((0, 3, 2), (2, 0, 2)),
    sized=lambda count: (max(count // 32, 1), 16, 2),
    fitted=lambda base: (*base[:-1], 2),
    large_shape=(31, 1603, 2),
    large=(
        Setup("many-rows", (8_209, 6, 2)),
        Setup("long-rows", (2, 25_013, 2)),
        Setup("one-row", (1, 50_021, 2)),
    ),
    edges=(
        Setup("one-place", (1, 1000, 2), values={
            "idx1": [[0] * 1000], "grad_dist1": [[0.1] * 1000], "grad_dist2": [[0.0] * 1000]}),
        Setup("numbers", values={
            "xyz1": [[[1.0, 300], [0, -2], [6e4, 1]]], "xyz2": [[[1.0, 300], [2, 2], [0, 0]]],
            "idx1": [[0, 2, 2]], "idx2": [[0, 0, 1]], "grad_dist1": [[1.0, -2, 0.5]],
            "grad_dist2": [[3.0, 0, 1]]}),
    ),
    invalid=(
        *defects.nulls(*POINTS, *INDICES, *DISTANCES, *OUTPUTS),
        *defects.dtypes(*POINTS, found=BF16),
        *defects.dtypes(*INDICES, found=INT64),
        *defects.dtypes(*DISTANCES, *OUTPUTS, found=BF16),
        *defects.dtypes(*POINTS[1:], *DISTANCES, *OUTPUTS, found=FLOAT16),
        *defects.shapes("xyz1", (6, 2), (1, 2, 3, 2), (2, 3, 3)),
        *defects.shapes("xyz2", (2, 4, 2), (6, 2)),
        *(row for n in (*INDICES, *DISTANCES) for row in defects.shapes(n, (6,), (2, 4))),
        *(row for n in OUTPUTS for row in defects.shapes(n, (2, 4, 2), (6, 2))),
        *(beyond(name, value) for name in INDICES for value in (3, -1)),
    ),
    empty_before="idx1-3",
)  # fmt: skip
