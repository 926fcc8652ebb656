"""Softmax of scaled scores, some of which are masked."""

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import BOOL, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _masked_softmax as shared

MASKED = -10000
"""The score of what is masked: a row of which nothing is left has equal shares."""


@operator(
    "aclnnScaledMaskedSoftmax",
    Input("x", "scores, (B, N, S1, S2)"),
    shared.MASK,
    shared.SCALE,
    shared.TRIANGLE,
    Output("y", "shares that sum to 1 in each row", shape="x", dtype="x"),
    **shared.PRODUCTS,
    checks=(
        rules.present("x", "mask", "y"),
        rules.supported("x"),
        rules.dtype_in("mask", BOOL),
        rules.supported("y"),
        rules.same_dtype("x", as_="y"),
        *(rules.rank_is(name, 4) for name in ("x", "mask", "y")),
        shared.first_two("x"),
        shared.last_two("x"),
        rules.requires(
            "a last extent of more than 0",
            "x",
            holds=lambda draft: draft.shape("x")[-1] > 0,
            found=lambda draft: f"shape {draft.shape('x')}",
        ),
        shared.length_fits("x"),
        shared.no_triangle,
        *rules.with_status(TILING_ERROR, rules.same_shape("y", "x")),
        rules.succeed_if_empty("x"),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=at_once(),
    sample=Sample({"x": (1, 2, 2, 3), **shared.SHAPES}, {"mask": BOOL}),
    area="attention",
    source="ops-nn vfusion/scaled_masked_softmax_v2: page aclnnScaledMaskedSoftmax, its checks",
)
def scaled_masked_softmax(
    facts: Facts,
    x: Array,
    mask: Array,
    scale: float = 1.0,
    fix_triu_mask: bool = False,  # in the order of C
) -> AnyArray:
    """Softmax of the last dimension of scaled scores; what is masked counts as -10000.

    ::

        score = -10000 where mask, else x * scale
        y = e^(score - max(score)) / sum(e^(score - max(score)))

    Computed in float32 and rounded once. In a row that is masked as a whole all shares are equal.
    ``fix_triu_mask`` must be false. For a null tensor the status is 161001 here; CANN's library
    gives 561103.

    As ``softmax((x * scale).masked_fill(mask, -10000), -1)`` in torch.
    """
    del fix_triu_mask
    factor, low = facts.dtype.type(scale), facts.dtype.type(MASKED)

    def compute(index: tuple[slice, ...], masked: AnyArray) -> AnyArray:
        score = np.where(masked, low, facts.read(x, index) * factor)
        score -= facts.row_max(score)
        np.exp(score, out=score)
        score /= facts.row_sum(score)
        return score

    return shared.each_masked(facts, "y", x, mask, compute)
