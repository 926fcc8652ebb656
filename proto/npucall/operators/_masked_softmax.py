"""Softmax of scaled scores, some of which are masked: what it and its gradient share.

Scores are (B, N, S1, S2), and so is the mask, which may have 1 for B and N.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from npucall.declare import Attribute, Facts, Input, Kind, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._rows import each_rows
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950

PRODUCTS: dict[str, Any] = {
    "products": dict.fromkeys((A2, A3), FLOATS),
    "legacy": {ASCEND_950: FLOATS, ASCEND_310P: HALF_AND_SINGLE},  # by the definition
}
MASK = Input("mask", "what is masked, (B or 1, N or 1, S1, S2)", as_is=True)
SCALE = Attribute("scale", Kind.DOUBLE, "a factor of the scores")
TRIANGLE = Attribute("fix_triu_mask", Kind.BOOL, "must be false")
SHAPES: dict[str, tuple[int, ...]] = {"mask": (1, 1, 2, 3)}
no_triangle = rules.value_fits("false", "fix_triu_mask", lambda value: not value)


def longest(draft: Draft) -> int:
    """The most elements that a row may have."""
    return 8192 if draft.product is ASCEND_950 else 4096


def length_fits(x: str) -> rules.Rule:
    """S2 is no more than a kernel can hold."""
    return rules.requires(
        "a last extent of at most 4096, on Ascend 950 of at most 8192",
        x,
        holds=lambda draft: draft.shape(x)[-1] <= longest(draft),
        found=lambda draft: f"shape {draft.shape(x)}",
    )


def mask_fits(x: str, part: slice, text: str) -> rules.Rule:
    """The first or the last two extents of the mask."""

    def holds(draft: Draft) -> bool:
        pairs = zip(draft.shape("mask")[part], draft.shape(x)[part], strict=True)
        return all(own == extent or (own == 1 and not part.start) for own, extent in pairs)

    return rules.requires(
        text, "mask", holds=holds, found=lambda draft: f"{draft.shape('mask')} for {draft.shape(x)}"
    )


first_two = partial(mask_fits, part=slice(0, 2), text="the first two extents of scores, or 1")
last_two = partial(mask_fits, part=slice(2, 4), text="the last two extents of scores")


def each_masked(
    facts: Facts, name: str, x: Array, mask: Array, compute: Callable[..., AnyArray]
) -> AnyArray:
    """An output by blocks of rows; ``compute`` gets the places of rows and what is masked there."""
    lead, out = x.shape[:-1], facts.output(name, x.shape)

    def block(index: tuple[slice, ...]) -> None:
        own = zip(index, mask.shape, strict=False)
        masked = facts.read(mask, tuple(slice(0, 1) if n == 1 else at for at, n in own))
        out[index] = compute(index, masked)

    each_rows(facts, lead, x.shape[-1], block)
    return out
