"""Gradient of softmax of scaled scores, some of which are masked."""

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, at_once, operator, rules
from npucall.dtypes import BOOL, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators import _masked_softmax as shared
from npucall.operators._norms import no_zero
from npucall.products import ASCEND_950


@operator(
    "aclnnScaledMaskedSoftmaxBackward",
    Input("grad_output", "gradient of the loss with respect to the shares, (B, N, S1, S2)"),
    Input("y", "the shares, as ScaledMaskedSoftmax gives them"),
    shared.MASK,
    shared.SCALE,
    shared.TRIANGLE,
    Output("out", "gradient with respect to the scores", "grad_output", "grad_output"),
    **shared.PRODUCTS,
    checks=(
        rules.present("grad_output", "y", "mask", "out"),
        rules.supported("grad_output", "y"),
        rules.dtype_in("mask", BOOL),
        rules.supported("out"),
        rules.except_on((ASCEND_950,), rules.public_format("grad_output", "y", "mask", "out")),
        rules.rank_is("grad_output", 4),
        shared.length_fits("grad_output"),
        rules.same_shape("y", "grad_output"),
        rules.same_shape("out", "grad_output"),
        rules.rank_is("mask", 4),
        shared.last_two("grad_output"),
        shared.first_two("grad_output"),
        shared.no_triangle,
        rules.same_dtype("y", "out", as_="grad_output"),
        *rules.with_status(TILING_ERROR, *no_zero("grad_output")),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=at_once(),
    sample=Sample(
        {**dict.fromkeys(("grad_output", "y"), (1, 2, 2, 3)), **shared.SHAPES}, {"mask": BOOL}
    ),
    area="attention",
    source="ops-nn vfusion/scaled_masked_softmax_grad_v2: page, its checks",
)
def scaled_masked_softmax_backward(
    facts: Facts,
    grad_output: Array,
    y: Array,
    mask: Array,
    scale: float = 1.0,
    fix_triu_mask: bool = False,  # in the order of C
) -> AnyArray:
    """Gradient of ``scaled_masked_softmax`` with respect to its scores, from its result ``y``.

    With the sum over the last dimension::

        out = 0                                                  where mask
        out = scale * (grad_output * y - sum(grad_output * y) * y)   elsewhere

    Computed in float32 and rounded once. ``out`` has the dtype of ``grad_output``: the software
    takes another one, and writes wrong bytes into it. Tensors without elements are refused
    (561002).

    As ``softmax_backward`` times ``scale`` in torch, with 0 where it is masked.
    """
    del fix_triu_mask
    factor = facts.dtype.type(scale)

    def compute(index: tuple[slice, ...], masked: AnyArray) -> AnyArray:
        shares = facts.read(y, index)
        product = facts.read(grad_output, index) * shares
        product -= facts.row_sum(product) * shares
        product *= factor
        return np.where(masked, facts.dtype.type(0), product)

    return shared.each_masked(facts, "out", grad_output, mask, compute)
