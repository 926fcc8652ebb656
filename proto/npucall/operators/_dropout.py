"""Dropout by a mask of bits: what both of its operators check and compute.

Bit i of byte i / 8, the lowest first, says whether element i stays, in row-major order.
"""

from __future__ import annotations

from math import prod

import numpy as np

from npucall.declare import Facts, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.declare.rules.rule import Rule
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, UINT8, AnyArray, Array
from npucall.operators._numerics import numbered
from npucall.products import A2, A3, ASCEND_910, ASCEND_950

PRODUCTS = {**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_910: HALF_AND_SINGLE}
_ALIGNED = 128
"""Elements of which masks have whole groups."""


def mask_bytes(count: int) -> int:
    """The length of the mask of so many elements."""
    return -(-count // _ALIGNED) * (_ALIGNED // 8)


def mask_checks(x: str, *, exact: bool) -> tuple[Rule, ...]:
    """Ranks, shapes, and the length of the mask."""

    def fits(draft: Draft) -> bool:
        found, least = prod(draft.shape("mask")), mask_bytes(prod(draft.shape(x)))
        return found == least if exact else found >= least

    few = "" if exact else "at least "
    return (
        rules.rank_at_most(8, x, "mask", "out"),
        rules.same_shape("out", x),
        rules.requires(
            f"{few}16 bytes for each 128 elements",
            "mask",
            x,
            holds=fits,
            found=lambda draft: f"{draft.shape('mask')} for {draft.shape(x)}",
        ),
    )


is_mask = rules.dtype_in("mask", UINT8)


def dropped(facts: Facts, x: Array, mask: Array, keep: float) -> AnyArray:
    """``x / keep`` where the mask has a bit, 0 elsewhere; ``keep`` 1 and 0 need no mask."""
    out = facts.output("out", x.shape)
    share = facts.rounded(np.asarray(keep, np.float32).astype(facts.dtype))
    factor = 1 / share if keep else share
    strides = [prod(x.shape[axis + 1 :]) for axis in range(len(x.shape))]

    def compute(index: tuple[slice, ...]) -> None:
        if keep in (0, 1):
            block = facts.read(x, index)
            out[index] = block * factor if keep else np.zeros_like(block)
            return
        places = np.ogrid[index] if index else ()
        terms = [place * stride for place, stride in zip(places, strides, strict=True)]
        numbers = np.asarray(sum(terms, np.zeros((), np.int64)))
        bits = numbered(facts, mask, numbers >> 3) >> (numbers & 7).astype(np.uint8)
        out[index] = np.where(bits & 1, facts.read(x, index) * factor, 0)

    facts.each(cut(x.shape, BLOCK), compute)
    return out
