"""aclnnMoeFinalizeRoutingV2 and aclnnMoeFinalizeRoutingV2Grad [src:moe]."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.dtypes import BF16, DOUBLE, FLOAT, FLOAT16, FLOATS, INT32, INT64
from npucall.errors import ArgumentMissingError
from npucall.tensors import Shape
from npucall_conformance.statements import _routing as shared
from npucall_conformance.stating import defects, reals
from npucall_conformance.stating.arguments import Arguments, Terms
from npucall_conformance.stating.domains import Draw, normal, uniform
from npucall_conformance.stating.parts import Attributes, In, Invalid, Out, Setup
from npucall_conformance.stating.promotion import dtype_of
from npucall_conformance.stating.statement import BEFORE_950, ONLY_950, Statement
from npucall_conformance.stating.tables import FLOATS_WITH_BFLOAT16

NAN, INF = reals.NAN, reals.INFINITY
EXPERTS = 3
COMMON: dict[str, Any] = {**shared.COMMON, "takes": FLOATS_WITH_BFLOAT16}


def any_expert(draw: Draw) -> Any:
    return draw.random.integers(0, EXPERTS, draw.shape)


SCALES = In("scales", uniform(0.1, 1.0), optional=True, own=True)
EXPERT = In("expert_idx", any_expert, dtypes=(INT32,), optional=True)
BIAS = In("bias", normal(), optional=True, beside="expert_idx")


class Routed:
    """A call: its rows in one row of experts, and what belongs to each place of (T, K)."""

    def __init__(self, k: Arguments, rows: Any, *, by_token: bool = True) -> None:
        places, scales, bias = shared.whole(k["expanded_row_idx"]), k["scales"], k["bias"]
        self.each = 1 if scales is None else int(scales.shape[1])
        tokens = len(places) // self.each
        grid = places.reshape(tokens, -1) if by_token else places.reshape(-1, tokens).T
        self.places = grid.reshape(-1)
        self.scales = np.ones(len(places)) if scales is None else scales.reshape(-1)
        self.rows = None if rows is None else rows.reshape(-1, rows.shape[-1])
        self.bias = 0 if bias is None else bias[shared.whole(k["expert_idx"])]

    def inputs(self) -> Any:
        """Of each place its row, 0 if it was dropped, and what its expert adds."""
        return shared.looked_up(self.rows, self.places), self.bias


def loops(k: Arguments) -> Any:
    call = Routed(k, k["expanded_x"], by_token=k["drop_pad_mode"] > 1)
    rows, bias = call.inputs()
    rows, found = rows.tolist(), []
    for token in range(len(rows) // call.each):
        sums = []
        for column in range(len(rows[0])):
            terms = [float(k[n][token, column]) for n in ("x1", "x2") if k[n] is not None]
            for place in range(token * call.each, (token + 1) * call.each):
                more = 0.0 if k["bias"] is None else float(bias[place, column])
                terms.append(float(call.scales[place]) * (rows[place][column] + more))
            sums.append(reals.total(terms))
        found.append(sums)
    return np.array(found)


def arrays(k: Arguments) -> Terms:
    call = Routed(k, k["expanded_x"], by_token=k["drop_pad_mode"] > 1)
    rows, bias = call.inputs()
    factors = call.scales[:, np.newaxis]

    def add(size: Any) -> Any:
        found = (size(factors) * (size(rows) + size(bias))).reshape(-1, call.each, rows.shape[1])
        return sum((size(k[n]) for n in ("x1", "x2") if k[n] is not None), found.sum(1))

    return Terms(add(np.asarray), add(np.abs), summed=call.each + 2)


def shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    """One expert of each token, as without factors; if they have a capacity, a row too many."""
    rows = (EXPERTS, base[0] // EXPERTS + 1) if attributes["drop_pad_mode"] % 2 else base[:1]
    return {
        **dict.fromkeys(("x1", "x2"), base),
        "expanded_x": (*rows, base[1]),
        "expanded_row_idx": base[:1],
        "bias": (EXPERTS, base[1]),
        **dict.fromkeys(("scales", "expert_idx"), (base[0], 1)),
    }


def torch_says(k: Arguments, torch: Any) -> Any:
    """Only of rows in the order of their tokens that are all there."""
    places = k["expanded_row_idx"].long()
    if k["drop_pad_mode"] != 2 or k["scales"] is None:
        return None
    rows = k["expanded_x"][places].reshape(*k["scales"].shape, -1)
    if k["bias"] is not None:
        rows = rows + k["bias"][k["expert_idx"].long()]
    found = torch.einsum("tkh,tk->th", rows, k["scales"])
    return sum((k[n] for n in ("x1", "x2") if k[n] is not None), found)


def sizes(tokens: int, each: int, width: int) -> dict[str, Shape]:
    """Of so many experts of a token; rows that have no capacity."""
    return {
        **dict.fromkeys(("x1", "x2"), (tokens, width)),
        "expanded_x": (tokens * each, width),
        "expanded_row_idx": (tokens * each,),
        "bias": (EXPERTS, width),
        **dict.fromkeys(("scales", "expert_idx"), (tokens, each)),
    }


def of_factors(*others: str) -> tuple[Setup, ...]:
    """Factors of a dtype of their own."""
    found = []
    for one in FLOATS:
        for other in FLOATS:
            dtypes = {**dict.fromkeys(others, one), "scales": other}
            if one is not other:
                found.append(Setup(dtypes=dtypes, products=ONLY_950))
    return tuple(found)


def refused(rows: tuple[Invalid, ...] = ()) -> tuple[Invalid, ...]:
    """What both refuse of places, factors and experts; ``rows``: between these."""
    return (
        *defects.shapes("expanded_row_idx", (3, 1), block="rank"),
        *defects.shapes("scales", (3,), block="rank"),
        *defects.shapes("bias", (4,), block="rank"),
        *defects.shapes("expanded_row_idx", (0,)),
        *defects.shapes("scales", (3, 0)),
        *defects.shapes("bias", (0, 4)),
        Invalid("null-expert_idx", {"expert_idx": None}, ("expert_idx",), ArgumentMissingError),
        *defects.shapes("scales", (4, 1)),
        *defects.shapes("expert_idx", (3,), (4, 1)),
        *defects.shapes("bias", (3, 5)),
        *rows,
    )


MOE_FINALIZE_ROUTING_V2 = Statement(
    "aclnnMoeFinalizeRoutingV2",
    prototype=(
        "const aclTensor* expandedX, const aclTensor* expandedRowIdx, "
        "const aclTensor* x1Optional, const aclTensor* x2Optional, "
        "const aclTensor* biasOptional, const aclTensor* scalesOptional, "
        "const aclTensor* expertIdxOptional, int64_t dropPadMode, const aclTensor* out"
    ),
    defaults={"drop_pad_mode": 0},
    inputs=(
        In("expanded_x", normal()),
        shared.ROUTED_TO,
        In("x1", normal(), optional=True),
        In("x2", normal(), optional=True, beside="x1"),
        BIAS,
        SCALES,
        EXPERT,
    ),
    outputs=(Out("out", lambda k: (Routed(k, None).places.size // Routed(k, None).each,
                                   k["expanded_x"].shape[-1]), "expanded_x"),),
    loops=loops,
    arrays=arrays,
    shapes=shapes,
    kernel=dtype_of("expanded_x"),
    attributes={"drop_pad_mode": (0, 1, 2, 3)},
    npu="torch_npu's own function npu_moe_finalize_routing calls it",
    torch=torch_says,
    **COMMON,
    mixed=(
        *of_factors("expanded_x", "x1", "x2", "bias"),
        Setup(dtypes={**dict.fromkeys(("expanded_x", "x1", "x2", "bias"), BF16), "scales": FLOAT}),
    ),
    edges=(
        Setup("one-addend", absent=("x2",)),
        Setup("experts-alone", absent=("bias",)),
        *(Setup(f"by-{what}", attributes={"drop_pad_mode": mode}, shapes=sizes(4, 3, 5))
          for mode, what in ((0, "experts"), (2, "tokens"))),
        *(Setup(f"dropped-{mode}", attributes={"drop_pad_mode": mode},
                shapes={**sizes(4, 3, 5), "expanded_x": (3, 3, 5)}) for mode in (1, 3)),
        Setup("numbers", attributes={"drop_pad_mode": 3}, absent=("x1", "x2"), values={
            "expanded_x": [[[INF], [-INF]], [[NAN], [1.0]]], "expanded_row_idx": [0, 1, -1, 2],
            "scales": [[1.0, 1.0], [INF, 2.0]], "expert_idx": [[0, 1], [1, 0]],
            "bias": [[1.0], [2.0]]}),
    ),
    invalid=(
        *defects.nulls("expanded_x", "expanded_row_idx", "out"),
        *defects.dtypes("expanded_x", found=INT32),
        *defects.dtypes("expanded_row_idx", found=INT64),
        *defects.dtypes("x1", "x2", "bias", found=FLOAT16),
        *defects.dtypes("scales", found=FLOAT16, products=BEFORE_950),
        *defects.dtypes("scales", found=DOUBLE),
        *defects.dtypes("expert_idx", found=INT64),
        *defects.dtypes("out", found=FLOAT16),
        *defects.late(
            *defects.values("drop_pad_mode", 4, -1),
            *defects.shapes("expanded_x", (3,), (3, 4, 1), block="rank"),
            *defects.shapes("expanded_x", (3, 0)),
            *refused((
                Invalid("null-x1", {"x1": None}, ("x1",), ArgumentMissingError),
                *defects.shapes("expanded_x", (4, 4)),
            )),
            *defects.shapes("x1", (3, 3), (1, 4)),
            *defects.shapes("x2", (3, 3), (3, 4, 1)),
            *defects.shapes("out", (4, 4), (12,)),
        ),
        *shared.beyond("expanded_row_idx", (3,), 3, -1),
        *shared.beyond("expert_idx", (3, 1), 3, -1),
    ),
)  # fmt: skip


def grad_loops(k: Arguments) -> dict[str, Any]:
    call, grad = Routed(k, k["expanded_x"]), k["grad_y"].tolist()
    shape = rows_shape(k)
    of_rows = [[0.0] * shape[-1] for _ in range(int(np.prod(shape[:-1])))]
    for i, place in enumerate(call.places.tolist()):
        if 0 <= place < len(of_rows):
            of_rows[place] = [x * float(call.scales[i]) for x in grad[i // call.each]]
    found = {"grad_expanded_x_out": np.reshape(of_rows, shape)}
    if k["scales"] is None:
        return found
    rows, bias = call.inputs()
    whole = (rows + bias).tolist()
    pairs = ((row, grad[i // call.each]) for i, row in enumerate(whole))
    sums = [reals.total([x * y for x, y in zip(*pair, strict=True)]) for pair in pairs]
    return {**found, "grad_scales_out": np.reshape(sums, k["scales"].shape)}


def grad_arrays(k: Arguments) -> dict[str, Terms]:
    call, shape = Routed(k, k["expanded_x"]), rows_shape(k)
    tokens = np.repeat(k["grad_y"], call.each, 0)
    of_rows = np.zeros((int(np.prod(shape[:-1])), shape[-1]))
    there = (call.places >= 0) & (call.places < len(of_rows))
    of_rows[call.places[there]] = (tokens * call.scales[:, np.newaxis])[there]
    found = {"grad_expanded_x_out": Terms(of_rows.reshape(shape))}
    if k["scales"] is not None:
        rows, bias = call.inputs()
        sizes = (np.abs(rows) + np.abs(bias)) * np.abs(tokens)
        sums = [each.sum(1).reshape(k["scales"].shape) for each in ((rows + bias) * tokens, sizes)]
        found["grad_scales_out"] = Terms(sums[0], sums[1], summed=shape[-1])
    return found


def rows_shape(k: Arguments) -> Shape:
    """From the attributes alone, since the rows may be absent."""
    every, width = k["expanded_row_idx"].size, k["grad_y"].shape[1]
    if k["drop_pad_mode"]:
        return (k["expert_num"], k["expert_capacity"], width)
    return (min(k["active_num"] or every, every), width)


def grad_shapes(base: Shape, attributes: Attributes) -> dict[str, Shape]:
    rows: Shape = (min(attributes["active_num"] or base[0], base[0]),)
    if attributes["drop_pad_mode"]:
        rows = (attributes["expert_num"], attributes["expert_capacity"])
    return {
        "grad_y": base,
        "expanded_x": (*rows, base[1]),
        "expanded_row_idx": base[:1],
        "bias": (EXPERTS, base[1]),
        **dict.fromkeys(("scales", "expert_idx"), (base[0], 1)),
    }


def grad_places(draw: Draw) -> Any:
    """The rows may be absent, so the attributes have their number."""
    if not draw["drop_pad_mode"]:
        count = draw["active_num"] or draw.shape[0]
        return shared.ended(draw.random.permutation(draw.shape[0]), count)
    return shared.some_of(draw, draw["expert_num"] * draw["expert_capacity"])


def torch_grad(k: Arguments, torch: Any) -> Any:
    """Its index_copy and index_select, where all rows are there."""
    if k["drop_pad_mode"] or k["active_num"] or k["scales"] is None:
        return None
    places, each = k["expanded_row_idx"].long(), k["scales"].shape[1]
    tokens = k["grad_y"].repeat_interleave(each, 0)
    rows = k["expanded_x"][places]
    if k["bias"] is not None:
        rows = rows + k["bias"][k["expert_idx"].long().flatten()]
    found = torch.zeros_like(k["expanded_x"])
    return {
        "grad_expanded_x_out": found.index_copy(0, places, tokens * k["scales"].reshape(-1, 1)),
        "grad_scales_out": (rows * tokens).sum(1).reshape(k["scales"].shape),
    }


CAPPED: dict[str, Any] = {"drop_pad_mode": 1, "expert_num": EXPERTS, "expert_capacity": 4}
GRAD_SIZES = {"grad_y" if n == "x1" else n: s for n, s in sizes(4, 3, 5).items() if n != "x2"}

MOE_FINALIZE_ROUTING_V2_GRAD = Statement(
    "aclnnMoeFinalizeRoutingV2Grad",
    prototype=(
        "const aclTensor* gradY, const aclTensor* expandedRowIdx, "
        "const aclTensor* expandedXOptional, const aclTensor* scalesOptional, "
        "const aclTensor* expertIdxOptional, const aclTensor* biasOptional, "
        "int64_t dropPadMode, int64_t activeNum, int64_t expertNum, int64_t expertCapacity, "
        "const aclTensor* gradExpandedXOut, const aclTensor* gradScalesOut"
    ),
    defaults=dict.fromkeys(("drop_pad_mode", "active_num", "expert_num", "expert_capacity"), 0),
    inputs=(
        In("grad_y", normal()),
        In("expanded_row_idx", grad_places, dtypes=(INT32,)),
        In("expanded_x", normal(), optional=True, beside="scales"),
        SCALES,
        EXPERT,
        BIAS,
    ),
    outputs=(
        Out("grad_expanded_x_out", rows_shape, "grad_y"),
        Out("grad_scales_out", lambda k: () if k["scales"] is None else k["scales"].shape,
            dtype_of("scales", "grad_y"), own=True, asked=lambda k: k["scales"] is not None),
    ),
    loops=grad_loops,
    arrays=grad_arrays,
    shapes=grad_shapes,
    kernel=dtype_of("grad_y"),
    attributes={
        "drop_pad_mode": (0, 1), "active_num": (0, shared.most), "expert_num": (EXPERTS,),
        "expert_capacity": (4,),
    },
    npu="torch_npu has no function that calls it",
    torch=torch_grad,
    **COMMON,
    defaulted=Setup(attributes={"drop_pad_mode": 0}),
    mixed=of_factors("grad_y", "expanded_x", "bias"),
    edges=(
        Setup("experts", attributes={"drop_pad_mode": 0, "active_num": 0}, shapes=GRAD_SIZES),
        Setup("few", attributes={"drop_pad_mode": 0, "active_num": 5},
              shapes={**GRAD_SIZES, "expanded_x": (5, 5)}),
        Setup("capacity", attributes=CAPPED, shapes={**GRAD_SIZES, "expanded_x": (3, 4, 5)}),
        Setup("experts-alone", absent=("bias",)),
        Setup("numbers", attributes={**CAPPED, "expert_num": 2, "expert_capacity": 2}, values={
            "grad_y": [[1.0], [INF]], "expanded_row_idx": [0, 1, -1, 2],
            "expanded_x": [[[INF], [-INF]], [[NAN], [1.0]]], "scales": [[1.0, 1.0], [INF, 2.0]],
            "expert_idx": [[0, 1], [1, 0]], "bias": [[1.0], [2.0]]}),
    ),
    invalid=(
        *defects.nulls("grad_y", "expanded_row_idx", "grad_expanded_x_out"),
        *defects.dtypes("grad_y", found=INT32),
        *defects.dtypes("expanded_row_idx", found=INT64),
        *defects.dtypes("expanded_x", found=FLOAT16),
        *defects.dtypes("scales", found=FLOAT16, products=BEFORE_950),
        *defects.dtypes("scales", found=DOUBLE),
        *defects.dtypes("expert_idx", found=INT64),
        *defects.dtypes("bias", "grad_expanded_x_out", "grad_scales_out", found=FLOAT16),
        *defects.late(
            *defects.values("drop_pad_mode", 2, -1),
            *defects.shapes("grad_y", (3,), (3, 4, 1), block="rank"),
            *defects.shapes("grad_y", (3, 0)),
            Invalid("null-expanded_x", {"expanded_x": None}, ("expanded_x",),
                    ArgumentMissingError),
            *refused(defects.shapes("grad_y", (4, 4))),
            *defects.values("expert_num", 0, base=Setup(attributes=CAPPED)),
            *defects.values("expert_capacity", 0, -1, base=Setup(attributes=CAPPED)),
            *defects.shapes("bias", (2, 4), base=Setup(attributes=CAPPED)),
            *defects.shapes("expanded_x", (4, 4), (3, 3)),
            *defects.shapes("grad_expanded_x_out", (4, 4), (12,)),
            *defects.shapes("grad_scales_out", (1, 3), (3,)),
        ),
        *shared.beyond("expanded_row_idx", (3,), 3, -1),
        *shared.beyond("expert_idx", (3, 1), 3, -1),
    ),
)  # fmt: skip
