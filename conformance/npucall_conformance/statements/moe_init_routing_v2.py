"""aclnnMoeInitRoutingV2 and aclnnMoeInitRoutingV2Grad [src:moe]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, INT16, INT32, INT64
from npucall.tensors import Shape
from npucall_conformance.statements import _routing as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal
from npucall_conformance.stating.parts import Attributes, In, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import BEFORE_950, Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
EXPERTS = 3
COUNTED, BEFORE = "expert_tokens_count_or_cumsum", "expert_tokens_before_capacity"
CAPPED: dict[str, Any] = {"drop_pad_mode": 1, "expert_num": EXPERTS, "expert_capacity": 2}


def experts_of(k: Arguments) -> list[int]:
    found: list[int] = shared.whole(k["expert_idx"]).tolist()
    return found


def places_of(k: Arguments) -> list[int]:
    """Of each row, by counting those of its expert before it; -1 where these fill it."""
    experts, places = experts_of(k), []
    for row, expert in enumerate(experts):
        before = experts[:row].count(expert)
        if not k["drop_pad_mode"]:
            places.append(before + sum(other < expert for other in experts))
        elif before < k["expert_capacity"]:
            places.append(expert * k["expert_capacity"] + before)
        else:
            places.append(-1)
    return places


def rows_shape(k: Arguments) -> Shape:
    width, every = k["x"].shape[1], k["expert_idx"].size
    if k["drop_pad_mode"]:
        return (k["expert_num"], k["expert_capacity"], width)
    return (len(range(every)[: k["active_num"] or every]), width)


def loops(k: Arguments) -> dict[str, Any]:
    tokens, experts, places = k["x"].tolist(), experts_of(k), places_of(k)
    shape = rows_shape(k)
    rows = [[0.0] * shape[-1] for _ in range(int(np.prod(shape[:-1])))]
    for row, place in enumerate(places):
        if 0 <= place < len(rows):
            rows[place] = tokens[row // (len(places) // len(tokens))]
    counts = [experts.count(expert) for expert in range(k["expert_num"])]
    sums = [sum(counts[: expert + 1]) for expert in range(len(counts))]
    return {
        "expanded_x_out": np.reshape(rows, shape),
        "expanded_row_idx_out": places,
        f"{COUNTED}_out": sums if k[f"{COUNTED}_flag"] == 1 else counts,
        f"{BEFORE}_out": counts,
    }


def arrays(k: Arguments) -> dict[str, Terms]:
    experts = shared.whole(k["expert_idx"])
    order = np.lexsort((np.arange(len(experts)), experts))
    places = np.argsort(order)
    first = np.searchsorted(experts[order], experts)
    if k["drop_pad_mode"]:
        own = places - first
        dropped = own >= k["expert_capacity"]
        places = np.where(dropped, -1, experts * k["expert_capacity"] + own)
    shape = rows_shape(k)
    rows = np.zeros((max(int(np.prod(shape[:-1])), places.max(initial=-1) + 1), shape[-1]))
    tokens = np.repeat(k["x"], len(experts) // max(len(k["x"]), 1), 0)
    rows[places[places >= 0]] = tokens[places >= 0]
    every = np.arange(k["expert_num"])
    counts = (experts[:, np.newaxis] == every).sum(0).astype(float)
    sums = (experts[:, np.newaxis] <= every).sum(0).astype(float)
    return {
        "expanded_x_out": Terms(rows[: int(np.prod(shape[:-1]))].reshape(shape)),
        "expanded_row_idx_out": Terms(places.astype(np.float64)),
        f"{COUNTED}_out": Terms(sums if k[f"{COUNTED}_flag"] == 1 else counts),
        f"{BEFORE}_out": Terms(counts),
    }


def experts(draw: Draw) -> Any:
    return draw.random.integers(0, draw["expert_num"] or EXPERTS, draw.shape)


def shapes(base: Shape, _: Attributes) -> dict[str, Shape]:
    return {"x": base, "expert_idx": (base[0], 2)}


def counts_shape(k: Arguments) -> Shape:
    return (k["expert_num"],)


def place(_: Any) -> Any:
    return INT32


MOE_INIT_ROUTING_V2 = Statement(
    "aclnnMoeInitRoutingV2",
    prototype=(
        "const aclTensor* x, const aclTensor* expertIdx, int64_t activeNum, "
        "int64_t expertCapacity, int64_t expertNum, int64_t dropPadMode, "
        "int64_t expertTokensCountOrCumsumFlag, bool expertTokensBeforeCapacityFlag, "
        "const aclTensor* expandedXOut, const aclTensor* expandedRowIdxOut, "
        "const aclTensor* expertTokensCountOrCumsumOut, "
        "const aclTensor* expertTokensBeforeCapacityOut"
    ),
    defaults={
        "active_num": 0,
        "expert_capacity": 0,
        "expert_num": 0,
        "drop_pad_mode": 0,
        f"{COUNTED}_flag": 0,
        f"{BEFORE}_flag": False,
    },
    inputs=(In("x", normal(2.0)), In("expert_idx", experts, dtypes=(INT32,))),
    outputs=(
        Out("expanded_x_out", rows_shape, "x"),
        Out("expanded_row_idx_out", lambda k: (k["expert_idx"].size,), place, own=True),
        Out(
            f"{COUNTED}_out", counts_shape, place, own=True,
            asked=lambda k: k[f"{COUNTED}_flag"] and not k["drop_pad_mode"],
        ),
        Out(
            f"{BEFORE}_out", counts_shape, place, own=True,
            asked=lambda k: k[f"{BEFORE}_flag"] and k["drop_pad_mode"],
        ),
    ),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=dtype_of("x"),
    cost=0.0,
    attributes={
        "active_num": (0, 3),
        "expert_capacity": (1,),
        "expert_num": (EXPERTS,),
        "drop_pad_mode": (0, 1),
        f"{COUNTED}_flag": (0, 1, 2),
        f"{BEFORE}_flag": (False, True),
    },
    npu="torch_npu's own function of that name calls the third version",
    **{**shared.COMMON, "takes": FLOATS_WITH_BFLOAT16, "rank_shapes": ((2, 1), (1, 3))},
    defaulted=Setup(attributes={"drop_pad_mode": 0, f"{COUNTED}_flag": 0}),
    empty=tuple(
        Setup(f"no-{what}", shape, attributes={"drop_pad_mode": 0, f"{COUNTED}_flag": 2})
        for what, shape in (("tokens", (0, 3)), ("columns", (2, 0)))
    ),
    edges=(
        Setup("numbers", (3, 2), values={
            "x": [[0.0, -0.0], [NAN, INF], [-INF, 1e-40]], "expert_idx": [[2, 0], [0, 2], [2, 2]],
        }),
        Setup("capacity", (6, 2), attributes={**CAPPED, "expert_capacity": 6}),
        Setup("any-expert", (3, 2), values={"expert_idx": [[7, 0], [2**31 - 1, 9], [7, 7]]},
              attributes={"drop_pad_mode": 0, f"{COUNTED}_flag": 0, "expert_num": 0}),
        Setup("one-expert", (4, 2), shapes={"expert_idx": (4,)}, products=("Ascend950",)),
        Setup("long", (4, 2), dtypes={"expert_idx": INT64}, products=("Ascend950",)),
    ),
    invalid=(
        *defects.nulls("x", "expert_idx", "expanded_x_out", "expanded_row_idx_out"),
        *defects.dtypes("x", found=INT32),
        *defects.dtypes("expert_idx", found=INT64, products=BEFORE_950),
        *defects.dtypes("expert_idx", found=FLOAT),
        *defects.dtypes("expanded_x_out", found=FLOAT16),
        *defects.dtypes("expanded_row_idx_out", found=INT64),
        *defects.dtypes(f"{COUNTED}_out", found=INT64,
                        base=Setup(attributes={f"{COUNTED}_flag": 1, "drop_pad_mode": 0})),
        *defects.dtypes(f"{BEFORE}_out", found=INT16,
                        base=Setup(attributes={f"{BEFORE}_flag": True, **CAPPED})),
        *defects.late(
            *defects.shapes("x", (3,), (3, 4, 1), block="rank"),
            *defects.ranks("x"),
            *defects.shapes("expert_idx", (3,), block="rank", products=BEFORE_950),
            *defects.shapes("expert_idx", (3, 2, 1), (), block="rank"),
            *defects.shapes("expert_idx", (4, 2)),
            *defects.values("active_num", -1),
            *defects.values("expert_capacity", -1),
            *defects.values("expert_num", -1),
            *defects.values("drop_pad_mode", 2, -1),
            *defects.values(f"{COUNTED}_flag", 3, -1),
            *defects.values("expert_capacity", 0, 4, base=Setup(attributes=CAPPED)),
            *defects.values("expert_num", 0, base=Setup(attributes=CAPPED)),
            *defects.shapes("expanded_x_out", (5, 4), (6, 3), (24,)),
            *defects.shapes("expanded_row_idx_out", (3, 2), (5,)),
            *defects.shapes(f"{COUNTED}_out", (4,),
                            base=Setup(attributes={f"{COUNTED}_flag": 1, "drop_pad_mode": 0})),
            *defects.shapes(f"{BEFORE}_out", (3, 1),
                            base=Setup(attributes={f"{BEFORE}_flag": True, **CAPPED})),
        ),
        *shared.beyond("expert_idx", (3, 2), -1),
    ),
)  # fmt: skip


def grad_shape(k: Arguments) -> Shape:
    return (k["expanded_row_idx"].size // k["top_k"], k["grad_expanded_x"].shape[-1])


def grad_loops(k: Arguments) -> Any:
    rows = k["grad_expanded_x"].reshape(-1, grad_shape(k)[1]).tolist()
    places, found = shared.whole(k["expanded_row_idx"]).tolist(), []
    for start in range(0, len(places), k["top_k"]):
        own = [rows[p] for p in places[start : start + k["top_k"]] if 0 <= p < len(rows)]
        columns = zip(*own, strict=True) if own else [()] * grad_shape(k)[1]
        found.append([reals.total(list(column)) for column in columns])
    return np.reshape(found, grad_shape(k))


def grad_arrays(k: Arguments) -> Terms:
    rows = k["grad_expanded_x"].reshape(-1, grad_shape(k)[1])
    found = shared.looked_up(rows, k["expanded_row_idx"]).reshape(-1, k["top_k"], rows.shape[1])
    return Terms(found.sum(1), np.abs(found).sum(1), summed=k["top_k"])


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    """Two experts with room for half of the rows each, if they have a capacity, or a row more."""
    count = base[0] * attributes["top_k"]
    rows = (2, count // 2 + 1) if attributes["drop_pad_mode"] else (count,)
    if attributes["active_num"] and not attributes["drop_pad_mode"]:
        rows = (attributes["active_num"],)
    return {"grad_expanded_x": (*rows, base[1]), "expanded_row_idx": (count,)}


def torch_says(k: Arguments, torch: Any) -> Any:
    rows, places = k["grad_expanded_x"].flatten(0, -2), k["expanded_row_idx"].long()
    there = (places >= 0) & (places < len(rows))
    rows = torch.cat((rows, torch.zeros_like(rows[:1])))
    return rows[torch.where(there, places, -1)].reshape(-1, k["top_k"], rows.shape[1]).sum(1)


MOE_INIT_ROUTING_V2_GRAD = Statement(
    "aclnnMoeInitRoutingV2Grad",
    prototype=(
        "const aclTensor* gradExpandedX, const aclTensor* expandedRowIdx, int64_t topK, "
        "int64_t dropPadMode, int64_t activeNum, const aclTensor* out"
    ),
    defaults={"drop_pad_mode": 0, "active_num": 0},
    inputs=(In("grad_expanded_x", normal()), shared.ROUTED_TO),
    outputs=(Out("out", grad_shape, "grad_expanded_x"),),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("grad_expanded_x"),
    attributes={"top_k": (2, 1, 3), "drop_pad_mode": (0, 1), "active_num": (0, shared.most)},
    npu="torch_npu has no function that calls it",
    torch=torch_says,
    **{**shared.COMMON, "takes": FLOATS_WITH_BFLOAT16},
    edges=(
        Setup("dropped", attributes={"top_k": 2, "drop_pad_mode": 1}, values={
            "grad_expanded_x": [[[INF], [-INF]], [[NAN], [1.0]]],
            "expanded_row_idx": [0, -1, -1, -1, 1, 3]}),
        Setup("more-than-all", attributes={"top_k": 1, "drop_pad_mode": 0, "active_num": 7},
              shapes={"grad_expanded_x": (7, 2), "expanded_row_idx": (5,)}),
    ),
    invalid=(
        *defects.nulls("grad_expanded_x", "expanded_row_idx", "out"),
        *defects.dtypes("grad_expanded_x", found=DOUBLE),
        *defects.dtypes("expanded_row_idx", found=INT64),
        *defects.dtypes("out", found=FLOAT16),
        *defects.late(
            *defects.values("drop_pad_mode", 2, -1),
            *defects.values("top_k", 0, 513),
            *defects.values("active_num", -1),
            *defects.shapes("expanded_row_idx", (6, 1), block="rank"),
            *defects.shapes("grad_expanded_x", (6,), (6, 4, 1), block="rank"),
            *defects.shapes("grad_expanded_x", (6, 0)),
            *defects.shapes("expanded_row_idx", (0,)),
            *defects.values("top_k", 4),
            *defects.shapes("grad_expanded_x", (7, 4)),
            *defects.shapes("out", (6, 4), (3, 3)),
        ),
        *shared.beyond("expanded_row_idx", (6,), 6, -1),
    ),
)  # fmt: skip
