"""aclnnGroupedBiasAddGrad and aclnnGroupedBiasAddGradV2 [src:grouped-bias-add-grad]."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT16, INT32, INT64, UINT8
from npucall.errors import ArgumentError
from npucall.tensors import Shape
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.parts import In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY


def groups(draw: Draw) -> Any:
    """Ends of groups, of which the last has all rows; or how many rows each has."""
    rows = draw.shapes["grad_y"][0]
    inner = np.sort(draw.random.integers(0, rows, draw.shape[0] - 1, endpoint=True))
    ends = [*inner.tolist(), rows]
    return np.diff(ends, prepend=0) if draw.earlier.get("group_idx_type") else ends


def parts(k: Arguments) -> list[Any]:
    """The rows of each group."""
    if k["group_idx"] is None:
        return list(k["grad_y"])
    given = [int(each) for each in k["group_idx"]]
    if k.values.get("group_idx_type"):
        given = [sum(given[: n + 1]) for n in range(len(given))]
    return [k["grad_y"][start:end] for start, end in pairwise((0, *given))]


def shape(k: Arguments) -> Shape:
    lead = k["grad_y"].shape[0] if k["group_idx"] is None else k["group_idx"].shape[0]
    return (lead, k["grad_y"].shape[-1])


def loops(k: Arguments) -> Any:
    if not k["grad_y"].size:
        return np.zeros(shape(k))
    found = [
        [reals.total([row[d] for row in part.tolist()]) for d in range(part.shape[1])]
        for part in parts(k)
    ]
    return np.reshape(found, shape(k))


def arrays(k: Arguments) -> Terms:
    if not k["grad_y"].size:
        return Terms(np.zeros(shape(k)))
    found = [np.stack([each.sum(0) for each in some]) for some in (parts(k), list(
        map(np.abs, parts(k))))]  # fmt: skip
    return Terms(found[0], found[1], summed=max(len(part) for part in parts(k)))


def torch_says(k: Arguments, torch: Any) -> Any:
    if not k["grad_y"].numel():
        return None
    if k["group_idx"] is None:
        return k["grad_y"].sum(1)
    lengths = torch.as_tensor([len(part) for part in parts(k)])
    return torch.segment_reduce(k["grad_y"], "sum", lengths=lengths, initial=0)


GROUPED = Setup(shapes={"grad_y": (3, 4), "group_idx": (3,)})
"""A call with groups, whose gradient has one dimension less."""


def with_groups(*found: Shape) -> tuple[Setup, ...]:
    """Calls with so many groups of so many rows."""
    return tuple(
        Setup(f"{count}-groups", shapes={"grad_y": tuple(rows), "group_idx": (count,)})
        for count, *rows in found
    )


def ends(row: str, *values: int, **given: int) -> Invalid:
    base = replace(GROUPED, attributes=given)
    change = {"group_idx": {"values": values}}
    return Invalid(row, change, ("group_idx",), ArgumentError, base=base)


def statement(version: str) -> Statement:
    typed = bool(version)
    few = 1 if typed else 5  # one number that all places have is valid for both types
    return Statement(
        f"aclnnGroupedBiasAddGrad{version}",
        prototype="const aclTensor* gradY, const aclTensor* groupIdxOptional, "
        + "int64_t groupIdxType, " * typed + "aclTensor* out",
        takes=FLOATS_WITH_BFLOAT16,
        legacy=(),
        inputs=(
            In("grad_y", normal()),
            In("group_idx", groups, dtypes=(INT64, INT32), optional=True, refused=True),
        ),
        outputs=(Out("out", shape, "grad_y"),),
        defaults={"group_idx_type": 0} if typed else {},
        attributes={"group_idx_type": (0, 1)} if typed else {},
        loops=loops,
        arrays=arrays,
        shapes=lambda base, _: {"grad_y": base, "group_idx": (3,)},
        kernel=dtype_of("grad_y"),
        npu="torch_npu has no function for it",
        torch=torch_says,
        base_shapes=((2, 4, 6), (3, 5, 7), (1, 3, 1), (17, 1, 2)),
        layout_shape=(2, 3, 4),
        rank_shapes=((1, 1, 1),),
        empty_shapes=((0, 3, 4), (2, 0, 3)),
        empty=(Setup("no-rows", shapes={"grad_y": (0, 3), "group_idx": (2,)}),),
        sized=lambda count: (max(count // 32, 1), 4, 8),
        large_shape=(31, 47, 71),
        large=(
            Setup("many-rows", shapes={"grad_y": (50_021, 2), "group_idx": (few,)}),
            Setup("long-rows", shapes={"grad_y": (4, 33_011), "group_idx": (few,)}),
            Setup("many-groups", (16_001, 3, 3)),
        ),
        broadcast=with_groups((3, 17, 4), (5, 4, 6), (1, 7, 3), (9, 33, 2), (2, 1, 1)),
        edges=(
            Setup("numbers", values={"grad_y": [[[1.0, NAN, INF], [2, 1, -INF], [0, 0, 5]]]}),
            Setup("equal", (1, 1000, 2), values={"grad_y": [[[0.1, 1 / 3]] * 1000]}),
            Setup("groups", values={"grad_y": [[1.0, NAN], [INF, 1], [-INF, 2], [3, 4]]},
                  shapes={"group_idx": (3,)}),
        ),
        invalid=(
            *defects.nulls("grad_y", "out"),
            *defects.dtypes("grad_y", "out", found=DOUBLE),
            *defects.dtypes("out", found=FLOAT16),
            *defects.dtypes("group_idx", found=UINT8, base=GROUPED),
            *defects.shapes("grad_y", (3, 4), (2, 3, 1, 4)),
            *defects.ranks("grad_y"),
            *defects.shapes("grad_y", (3,), (1, 3, 4), base=GROUPED),
            *defects.shapes("group_idx", (1, 3), (), base=GROUPED),
            *defects.shapes("group_idx", (2049,), base=GROUPED),
            *defects.shapes("out", (8,), (1, 2, 4)),
            *defects.ranks("out"),
            *defects.shapes("out", (2, 3), (3, 4)),
            *defects.shapes("out", (2, 4), (3, 1), base=GROUPED),
            *(defects.values("group_idx_type", -1, 2) if typed else ()),
            ends("ends-fall", 2, 1, 3),
            ends("ends-short", 1, 2, 2),
            ends("ends-beyond", 1, 2, 4),
            ends("ends-before", -1, 2, 3),
            *([ends("counts-short", 1, 1, 0, group_idx_type=1),
               ends("counts-beyond", 1, 2, 1, group_idx_type=1),
               ends("counts-negative", 4, -1, 0, group_idx_type=1)] if typed else []),
        ),
        empty_before="ends-fall",
        defaulted=Setup(shapes={"grad_y": (7, 4), "group_idx": (3,)}),
    )  # fmt: skip


GROUPED_BIAS_ADD_GRAD = statement("")
GROUPED_BIAS_ADD_GRAD_V2 = statement("V2")
