"""Tokens from the rows of experts, which may have a capacity and a bias, and the gradients."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, at_once, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import BF16, FLOAT, FLOAT16, INT32, AnyArray, Array
from npucall.operators import _routing as shared
from npucall.operators._norms import no_zero
from npucall.operators._routing import ROUTED, late
from npucall.products import ASCEND_950
from npucall.tensors import Shape

PLACES = Input("expanded_row_idx", "the place of each row, (T * K)", as_is=True)
SCALES = Input(
    "scales", "a factor for each row, (T, K); none: K is 1", as_is=True, optional=True,
    c_name="scalesOptional",
)  # fmt: skip
EXPERTS = Input(
    "expert_idx", "the expert of each row, (T, K)", as_is=True, optional=True,
    c_name="expertIdxOptional",
)  # fmt: skip
BIAS = Input(
    "bias", "what each expert adds to its rows, (E, H)", optional=True, c_name="biasOptional"
)
FACTORS = ((FLOAT, FLOAT), (FLOAT16, FLOAT16), (BF16, BF16), (BF16, FLOAT))
"""Rows and their factors, where these have no dtype of their own."""


def given(*names: str) -> Callable[[Draft], bool]:
    """Condition for ``when``: the call has all of them."""
    return lambda draft: not any(map(draft.absent, names))


def needs(name: str, other: str) -> rules.Rule:
    """Whoever gives ``other`` gives it too."""
    return rules.when(given(other), rules.present(name), f"with {other}")


def pairs(draft: Draft) -> Shape:
    """(T, K)."""
    experts = 1 if draft.absent("scales") else draft.shape("scales")[1]
    return (draft.shape("expanded_row_idx")[0] // experts, experts)


def about_rows(of_token: str) -> tuple[rules.Rule, ...]:
    """What the tiling checks of places, factors and experts; ``of_token`` has H numbers a token."""
    return (
        rules.rank_is("expanded_row_idx", 1),
        rules.rank_is("scales", 2),
        rules.rank_is("bias", 2),
        *no_zero("expanded_row_idx", "scales", "bias"),
        needs("expert_idx", "bias"),
        shared.within(
            "a factor for each place",
            "scales",
            lambda d: d.absent("scales") or prod(d.shape("scales")) == prod(d.shape(PLACES.name)),
            PLACES.name,
        ),
        rules.shape_of("expanded_row_idx", into="pairs", make=pairs),
        rules.same_shape("expert_idx", "pairs", "one for each place, (T, K)"),
        shared.within(
            f"as many columns as {of_token}",
            "bias",
            lambda d: d.absent("bias") or d.shape("bias")[1] == d.shape(of_token)[-1],
            of_token,
        ),
    )


@operator(
    "aclnnMoeFinalizeRoutingV2",
    Input("expanded_x", "the rows of all experts, (T * K, H) or (E, C, H)"),
    PLACES,
    Input("x1", "what tokens start from, (T, H)", optional=True, c_name="x1Optional"),
    Input("x2", "the same once more", optional=True, c_name="x2Optional"),
    BIAS,
    SCALES,
    EXPERTS,
    Attribute(
        "drop_pad_mode", Kind.INT64, "places of the first experts of all tokens come first: "
        "0 (T * K, H), 1 (E, C, H); those of the first token: 2 (T * K, H), 3 (E, C, H)",
    ),
    Output("out", "a sum of its rows for each token", "tokens", "expanded_x", const=True),
    checks=(
        rules.present("expanded_x", "expanded_row_idx", "out"),
        rules.supported("expanded_x"),
        rules.dtype_in("expanded_row_idx", INT32),
        rules.same_dtype("x1", "x2", "bias", as_="expanded_x"),
        rules.except_on((ASCEND_950,), rules.dtype_row(FACTORS, "expanded_x", "scales")),
        rules.on((ASCEND_950,), rules.supported("scales")),
        rules.dtype_in("expert_idx", INT32),
        rules.same_dtype("out", as_="expanded_x"),
        *late(
            rules.one_of("drop_pad_mode", 0, 1, 2, 3),
            rules.requires(
                "2 dimensions, or 3 where experts have a capacity",
                "expanded_x",
                holds=lambda d: len(d.shape("expanded_x")) == 2 + d.attribute("drop_pad_mode") % 2,
                found=lambda d: f"shape {d.shape('expanded_x')}",
            ),
            *no_zero("expanded_x"),
            *about_rows("expanded_x"),
            needs("x1", "x2"),
            shared.within(
                "a row for each place",
                "expanded_x",
                lambda d: d.attribute("drop_pad_mode") % 2 == 1
                or d.shape("expanded_x")[0] == d.shape("expanded_row_idx")[0],
                "expanded_row_idx",
            ),
            rules.shape_of(
                "expanded_x", into="places", make=lambda d: (prod(d.shape("expanded_x")[:-1]),)
            ),
            rules.when(
                given("bias"),
                rules.shape_of("bias", into="experts", make=lambda d: d.shape("bias")[:1]),
                "with bias",
            ),
            rules.shape_of(
                "expanded_x",
                into="tokens",
                make=lambda d: (d.shape("pairs")[0], d.shape("expanded_x")[-1]),
            ),
            *(rules.same_shape(n, "tokens", "a row for each token") for n in ("x1", "x2", "out")),
        ),
    ),
    kernel_dtype=rules.dtype_of("expanded_x"),
    over=at_once(holds=lambda facts, _: 32 * facts.count("expanded_row_idx")),
    values=shared.checked("drop_pad_mode", expanded_row_idx="places", expert_idx="experts"),
    sample=Sample(
        {"expanded_row_idx": (2,), "scales": (2, 1), "expert_idx": (2, 1)},
        {"expanded_row_idx": INT32, "expert_idx": INT32},
    ),
    source="ops-transformer moe/moe_finalize_routing_v2: page aclnnMoeFinalizeRoutingV2, without "
    "Atlas inference; what a row that was dropped adds follows from the gradient's test data",
    **ROUTED,
)  # fmt: skip
def moe_finalize_routing_v2(
    facts: Facts,
    expanded_x: Array,
    expanded_row_idx: Array,
    x1: Array | None = None,
    x2: Array | None = None,
    bias: Array | None = None,
    scales: Array | None = None,
    expert_idx: Array | None = None,
    drop_pad_mode: int = 0,
) -> AnyArray:
    """Tokens from the rows that experts made of them.

    With i = t * K + k, or k * T + t with ``drop_pad_mode`` 0 and 1::

        out[t] = x1[t] + x2[t] + sum over k of
            scales[t, k] * (expanded_x[expanded_row_idx[i]] + bias[expert_idx[t, k]])

    What is not given is left out; without ``scales`` K is 1. With ``drop_pad_mode`` 1 and 3 the
    experts have a capacity, and -1 is the place of a row that was dropped, which is 0. Sums are
    taken in float32, and rounded once. A place or an expert that is none is refused (161002) when
    the call runs.
    """
    tokens, experts = facts.shapes["pairs"]

    def start(block: tuple[slice, ...]) -> Any:
        found = [facts.read(each, block) for each in (x1, x2) if each is not None]
        return sum(found[1:], found[0]) if found else 0

    places = np.asarray(facts.read(expanded_row_idx, ...))
    shared.check_places(facts, "expanded_row_idx", places, drop_pad_mode)
    if drop_pad_mode < 2:  # noqa: PLR2004
        places = places.reshape(experts, tokens).T.reshape(-1)
    factors, more = shared.flat(facts, scales), shared.added(facts, bias, expert_idx)
    return shared.gathered(facts, expanded_x, places, experts, factors, more, start)


def rows(draft: Draft) -> Shape:
    """The shape of the rows of all experts."""
    width, every = draft.shape("grad_y")[1:], draft.shape("expanded_row_idx")[0]
    if draft.attribute("drop_pad_mode"):
        return (draft.attribute("expert_num"), draft.attribute("expert_capacity"), *width)
    kept = draft.attribute("active_num")
    return (kept if 0 < kept < every else every, *width)


def places_of(draft: Draft) -> Shape:
    """How many places there are, those of rows that were dropped included."""
    each = draft.shape("expanded_row_idx")
    return (prod(draft.shape("rows")[:-1]),) if draft.attribute("drop_pad_mode") else each


@operator(
    "aclnnMoeFinalizeRoutingV2Grad",
    Input("grad_y", "gradient of the tokens, (T, H)"),
    PLACES,
    Input("expanded_x", "the rows of all experts", optional=True, c_name="expandedXOptional"),
    SCALES,
    EXPERTS,
    BIAS,
    Attribute("drop_pad_mode", Kind.INT64, "0 (T * K, H) or active_num rows, 1 (E, C, H)"),
    Attribute("active_num", Kind.INT64, "rows that were kept, with drop_pad_mode 0; 0 all"),
    Attribute("expert_num", Kind.INT64, "E, with drop_pad_mode 1"),
    Attribute("expert_capacity", Kind.INT64, "C, with drop_pad_mode 1"),
    Output("grad_expanded_x_out", "gradient of the rows", "rows", "grad_y", const=True),
    Output(
        "grad_scales_out", "gradient of scales", "scales", "scales",
        const=True, as_is=True, asked=given("scales"),
    ),
    checks=(
        rules.present("grad_y", "expanded_row_idx", "grad_expanded_x_out"),
        rules.supported("grad_y"),
        rules.dtype_in("expanded_row_idx", INT32),
        rules.same_dtype("expanded_x", as_="grad_y"),
        rules.except_on((ASCEND_950,), rules.same_dtype("scales", as_="grad_y")),
        rules.on((ASCEND_950,), rules.supported("scales")),
        rules.dtype_in("expert_idx", INT32),
        rules.same_dtype("bias", "grad_expanded_x_out", as_="grad_y"),
        rules.when(
            given("scales"), rules.same_dtype("grad_scales_out", as_="scales"), "with scales"
        ),
        *late(
            rules.one_of("drop_pad_mode", 0, 1),
            rules.rank_is("grad_y", 2),
            *no_zero("grad_y"),
            needs("expanded_x", "scales"),
            *about_rows("grad_y"),
            rules.requires(
                "a token for each K places",
                "grad_y",
                holds=lambda d: d.shape("grad_y")[0] == d.shape("pairs")[0],
                found=lambda d: f"{d.shape('grad_y')} and {d.shape('expanded_row_idx')}",
            ),
            *(
                rules.when(
                    lambda d: d.attribute("drop_pad_mode"), rules.positive(name), "where it counts"
                )
                for name in ("expert_num", "expert_capacity")
            ),
            shared.within(
                "expert_num rows",
                "bias",
                lambda d: d.absent("bias")
                or not d.attribute("drop_pad_mode")
                or d.shape("bias")[0] == d.attribute("expert_num"),
            ),
            rules.shape_of("grad_y", into="rows", make=rows),
            rules.shape_of("grad_y", into="places", make=places_of),
            rules.when(
                given("bias", "scales"),
                rules.shape_of("bias", into="experts", make=lambda d: d.shape("bias")[:1]),
                "with bias and scales",
            ),
            rules.same_shape("expanded_x", "rows", "that of the rows of all experts"),
            rules.same_shape("grad_expanded_x_out", "rows", "that of the rows of all experts"),
            rules.when(
                given("scales"), rules.same_shape("grad_scales_out", "scales"), "with scales"
            ),
        ),
    ),
    kernel_dtype=rules.dtype_of("grad_y"),
    over=at_once(
        holds=lambda facts, _: 56 * facts.count("expanded_row_idx") + 8 * facts.count("places")
    ),
    values=shared.checked("drop_pad_mode", expanded_row_idx="places", expert_idx="experts"),
    sample=Sample(
        {"expanded_row_idx": (2,), "scales": (2, 1), "expert_idx": (2, 1)},
        {"expanded_row_idx": INT32, "expert_idx": INT32},
    ),
    source="ops-transformer moe/moe_finalize_routing_v2_grad: page aclnnMoeFinalizeRoutingV2Grad, "
    "its test data; which fault is found first is decided",
    **ROUTED,
)  # fmt: skip
def moe_finalize_routing_v2_grad(
    facts: Facts,
    grad_y: Array,
    expanded_row_idx: Array,
    expanded_x: Array | None = None,
    scales: Array | None = None,
    expert_idx: Array | None = None,
    bias: Array | None = None,
    drop_pad_mode: int = 0,
    active_num: int = 0,
    expert_num: int = 0,
    expert_capacity: int = 0,
) -> tuple[AnyArray, AnyArray | None]:
    """Gradients of ``moe_finalize_routing_v2`` with respect to its rows and their factors.

    With the token t = i // K and x the rows of ``expanded_x``, in one row of experts::

        grad_expanded_x_out[expanded_row_idx[i]] = grad_y[t] * scales[i]
        grad_scales_out[i] = sum((x[expanded_row_idx[i]] + bias[expert_idx[i]]) * grad_y[t])

    Without ``scales`` K is 1, and so is each factor. Rows of no token have the gradient 0. A row
    that was dropped, whose place is -1 with ``drop_pad_mode`` 1, else ``active_num`` or more, is 0
    in the second sum. All is computed in float32, and rounded once. A place or an expert that is
    none is refused (161002) when the call runs.

    As ``index_copy`` and ``index_select`` in torch.
    """
    del active_num, expert_num, expert_capacity
    places = np.asarray(facts.read(expanded_row_idx, ...))
    shared.check_places(facts, "expanded_row_idx", places, drop_pad_mode)
    factors, name = shared.flat(facts, scales), "grad_expanded_x_out"
    of_rows = shared.sent(facts, name, grad_y, places, factors)
    if scales is None or expanded_x is None:
        return of_rows, None
    more = shared.added(facts, bias, expert_idx)
    of_scales = shared.weighed(facts, expanded_x, grad_y, places, more)
    return of_rows, of_scales.reshape(facts.shapes["scales"])
