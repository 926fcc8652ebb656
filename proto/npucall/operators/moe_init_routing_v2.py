"""Rows for experts, which may have a capacity, and the gradient."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import INT32, INT64, AnyArray, Array
from npucall.errors import AttributeValueError
from npucall.operators import _routing as shared
from npucall.operators._norms import no_zero
from npucall.operators._routing import ROUTED, late
from npucall.products import ASCEND_950
from npucall.tensors import Shape

MODE = Attribute("drop_pad_mode", Kind.INT64, "0 (T * K, H) rows; 1 (E, C, H), others are dropped")
COUNTED, BEFORE = "expert_tokens_count_or_cumsum", "expert_tokens_before_capacity"
COUNTS = tuple(f"{name}_out" for name in (COUNTED, BEFORE))


def capped(draft: Draft) -> bool:
    """Whether experts have a capacity."""
    return draft.attribute("drop_pad_mode") == 1


def counted(draft: Draft) -> bool:
    """Whether rows of experts without a capacity are counted."""
    return draft.attribute(f"{COUNTED}_flag") > 0 and not capped(draft)


def counted_before(draft: Draft) -> bool:
    """Whether rows of experts with a capacity are counted."""
    return draft.attribute(f"{BEFORE}_flag") and capped(draft)


def rows(draft: Draft) -> Shape:
    """The shape of the rows of all experts."""
    width, every = draft.shape("x")[1:], prod(draft.shape("expert_idx"))
    if capped(draft):
        return (draft.attribute("expert_num"), draft.attribute("expert_capacity"), *width)
    return (min(every, draft.attribute("active_num") or every), *width)


def known(draft: Draft) -> Shape:
    """How many experts there are; any number where they are neither counted nor have rows."""
    return (draft.attribute("expert_num") if capped(draft) or counted(draft) else 2**31,)


def rows_held(facts: Facts, given: Mapping[str, Any]) -> int:
    """The tokens of rows, and the counts of experts."""
    counts = 3 * facts.count("known") if given["drop_pad_mode"] or given[f"{COUNTED}_flag"] else 0
    return prod(facts.shapes["rows"][:-1]) + counts


def fitting(name: str, expected: str, holds: Any) -> rules.Rule:
    """A number that fits what else the call has."""
    return rules.requires(
        expected,
        name,
        holds=holds,
        found=lambda draft: draft.attribute(name),
        error=AttributeValueError,
    )


@operator(
    "aclnnMoeInitRoutingV2",
    Input("x", "the tokens, (T, H)"),
    Input("expert_idx", "the experts of each, (T, K)", as_is=True),
    Attribute("active_num", Kind.INT64, "rows that are kept, with drop_pad_mode 0; 0 all"),
    Attribute("expert_capacity", Kind.INT64, "C, at most T, with drop_pad_mode 1"),
    Attribute("expert_num", Kind.INT64, "E, where rows are counted or experts have a capacity"),
    MODE,
    Attribute(f"{COUNTED}_flag", Kind.INT64, "with drop_pad_mode 0: 1 sums of counts, 2 counts"),
    Attribute(f"{BEFORE}_flag", Kind.BOOL, "whether rows are counted, with drop_pad_mode 1"),
    Output("expanded_x_out", "the rows of all experts", "rows", "x", const=True),
    Output("expanded_row_idx_out", "the place of each", "each", "place", const=True, as_is=True),
    Output(
        COUNTS[0], "rows of each expert, or of it and those before", "known", "place",
        const=True, as_is=True, asked=counted,
    ),
    Output(
        COUNTS[1], "rows of each expert before some are dropped", "known", "place",
        const=True, as_is=True, asked=counted_before,
    ),
    checks=(
        rules.present("x", "expert_idx", "expanded_x_out", "expanded_row_idx_out"),
        rules.supported("x"),
        rules.except_on((ASCEND_950,), rules.dtype_in("expert_idx", INT32)),
        rules.on((ASCEND_950,), rules.dtype_in("expert_idx", INT32, INT64)),
        rules.same_dtype("expanded_x_out", as_="x"),
        rules.dtype_in("expanded_row_idx_out", INT32),
        *(
            rules.when(asked, rules.dtype_in(name, INT32), f"with {name}")
            for name, asked in zip(COUNTS, (counted, counted_before), strict=True)
        ),
        rules.dtype_from("x", into="place", make=lambda _: INT32),
        *late(
            rules.rank_is("x", 2),
            rules.except_on((ASCEND_950,), rules.rank_is("expert_idx", 2)),
            rules.on((ASCEND_950,), rules.rank_is("expert_idx", 1, 2)),
            shared.within(
                "experts for each token",
                "expert_idx",
                lambda draft: draft.shape("expert_idx")[0] == draft.shape("x")[0],
                "x",
            ),
            *map(rules.not_negative, ("active_num", "expert_capacity", "expert_num")),
            rules.one_of("drop_pad_mode", 0, 1),
            rules.one_of(f"{COUNTED}_flag", 0, 1, 2),
            rules.when(
                capped,
                fitting(
                    "expert_capacity",
                    "1 to the number of tokens",
                    lambda d: 1 <= d.attribute("expert_capacity") <= d.shape("x")[0],
                ),
                "with drop_pad_mode 1",
            ),
            rules.when(
                lambda draft: capped(draft) or counted(draft),
                rules.positive("expert_num"),
                "with drop_pad_mode 1 or counts",
            ),
            rules.shape_of("x", into="rows", make=rows),
            rules.shape_of("x", into="each", make=lambda d: (prod(d.shape("expert_idx")),)),
            rules.shape_of("x", into="known", make=known),
            rules.same_shape("expanded_x_out", "rows", "one for each row of an expert"),
            rules.same_shape("expanded_row_idx_out", "each", "one for each expert of a token"),
            *(
                rules.when(
                    asked, rules.same_shape(name, "known", "one for each expert"), f"with {name}"
                )
                for name, asked in zip(COUNTS, (counted, counted_before), strict=True)
            ),
        ),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(
        holds=lambda facts, given: 56 * facts.count("each") + 8 * rows_held(facts, given)
    ),
    values=shared.checked(expert_idx="known"),
    sample=Sample({"expert_idx": (2, 2)}, {"expert_idx": INT32}, {"expert_num": 2}),
    source="ops-transformer moe/moe_init_routing_v2: page aclnnMoeInitRoutingV2, without Atlas "
    "inference; places with a capacity by its test data, order of equal experts decided",
    **ROUTED,
)  # fmt: skip
def moe_init_routing_v2(
    facts: Facts,
    x: Array,
    expert_idx: Array,
    active_num: int = 0,
    expert_capacity: int = 0,
    expert_num: int = 0,
    drop_pad_mode: int = 0,
    expert_tokens_count_or_cumsum_flag: int = 0,
    expert_tokens_before_capacity_flag: bool = False,
) -> tuple[AnyArray | None, ...]:
    """Rows of ``x`` in the order of their experts, the place of each, and how many there are.

    With K experts of each token, and ``expert_idx`` in one row::

        order = argsort(expert_idx)
        expanded_row_idx_out[order[j]] = j
        expanded_x_out[j] = x[order[j] // K]

    Rows of one expert keep their order. ``active_num`` keeps so many rows. With ``drop_pad_mode``
    1 each expert has ``expert_capacity`` rows: the place of its row n is e * expert_capacity + n,
    that of a row beyond is -1, and rows that are left are 0. Rows are counted before any is
    dropped. An expert that is none is refused (161002) when the call runs.
    """
    del expert_tokens_before_capacity_flag, active_num
    experts = np.asarray(facts.read(expert_idx, ...)).reshape(-1)
    shared.check_places(facts, "expert_idx", experts, known="known")
    order = np.argsort(experts, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    counts = None
    if drop_pad_mode or expert_tokens_count_or_cumsum_flag:
        counts = np.bincount(experts, minlength=expert_num)
    if drop_pad_mode and counts is not None:
        own = places - (np.cumsum(counts) - counts)[experts]
        places = np.where(own < expert_capacity, experts * expert_capacity + own, -1)
    out = shared.sent(facts, "expanded_x_out", x, places, None)
    found: list[Any] = [counts if name in facts.asked else None for name in COUNTS]
    if expert_tokens_count_or_cumsum_flag == 1 and found[0] is not None:
        found[0] = np.cumsum(found[0])
    return out, places.astype(np.int32), *(n if n is None else n.astype(np.int32) for n in found)


@operator(
    "aclnnMoeInitRoutingV2Grad",
    Input("grad_expanded_x", "gradients of the rows of all experts"),
    Input("expanded_row_idx", "the place of each, as MoeInitRoutingV2 gives it", as_is=True),
    Attribute("top_k", Kind.INT64, "K, the experts of a token"),
    MODE,
    Attribute("active_num", Kind.INT64, "rows that were kept, with drop_pad_mode 0; 0 all"),
    Output("out", "gradient of the tokens, (T, H)", "tokens", "grad_expanded_x", const=True),
    checks=(
        rules.present("grad_expanded_x", "expanded_row_idx", "out"),
        rules.supported("grad_expanded_x"),
        rules.dtype_in("expanded_row_idx", INT32),
        rules.same_dtype("out", as_="grad_expanded_x"),
        *late(
            rules.one_of("drop_pad_mode", 0, 1),
            rules.value_fits(f"1 to {shared.MOST}", "top_k", lambda k: 1 <= k <= shared.MOST),
            rules.not_negative("active_num"),
            rules.rank_is("expanded_row_idx", 1),
            rules.requires(
                "2 dimensions, or 3 with drop_pad_mode 1",
                "grad_expanded_x",
                holds=lambda d: len(d.shape("grad_expanded_x")) == 2 + capped(d),
                found=lambda d: f"shape {d.shape('grad_expanded_x')}",
            ),
            *no_zero("grad_expanded_x", "expanded_row_idx"),
            fitting(
                "top_k",
                "a divisor of the number of places",
                lambda d: d.shape("expanded_row_idx")[0] % d.attribute("top_k") == 0,
            ),
        ),
        shared.within(
            "active_num rows, or one for each place",
            "grad_expanded_x",
            lambda d: (
                capped(d)
                or d.shape("grad_expanded_x")[0]
                == (d.attribute("active_num") or d.shape("expanded_row_idx")[0])
            ),
            "expanded_row_idx",
        ),
        rules.shape_of(
            "grad_expanded_x",
            into="places",
            make=lambda d: (
                (prod(d.shape("grad_expanded_x")[:2]),)
                if capped(d)
                else d.shape("expanded_row_idx")
            ),
        ),
        rules.shape_of(
            "grad_expanded_x",
            into="tokens",
            make=lambda d: (
                d.shape("expanded_row_idx")[0] // d.attribute("top_k"),
                d.shape("grad_expanded_x")[-1],
            ),
        ),
        *late(rules.same_shape("out", "tokens", "a row for each token")),
    ),
    kernel_dtype=rules.dtype_of("grad_expanded_x"),
    over=at_once(holds=lambda facts, _: 8 * facts.count("expanded_row_idx")),
    values=shared.checked("drop_pad_mode", expanded_row_idx="places"),
    sample=Sample({"expanded_row_idx": (2,)}, {"expanded_row_idx": INT32}, {"top_k": 2}),
    source="ops-transformer moe/moe_init_routing_v2_grad: page aclnnMoeInitRoutingV2Grad, tiling",
    **ROUTED,
)
def moe_init_routing_v2_grad(
    facts: Facts,
    grad_expanded_x: Array,
    expanded_row_idx: Array,
    top_k: int,
    drop_pad_mode: int = 0,
    active_num: int = 0,
) -> AnyArray:
    """Gradient of ``moe_init_routing_v2`` with respect to its tokens.

    ::

        out[t] = sum over k of grad_expanded_x[expanded_row_idx[t * K + k]]

    With ``drop_pad_mode`` 1 there are E experts of C rows, in one row here, and -1 is the place of
    a row that was dropped; it adds nothing, nor does one behind ``active_num`` rows. Sums are taken
    in float32, and rounded once. A place that is none is refused (161002) when the call runs.

    As the sum of ``index_select`` in torch.
    """
    del active_num
    places = np.asarray(facts.read(expanded_row_idx, ...))
    shared.check_places(facts, "expanded_row_idx", places, drop_pad_mode)
    return shared.gathered(facts, grad_expanded_x, places, top_k)
