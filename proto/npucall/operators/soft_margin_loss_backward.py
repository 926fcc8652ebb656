"""Gradient of the soft margin loss with respect to its input."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import MEAN, REDUCTION, Reduction
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "self", "target")


@operator(
    "aclnnSoftMarginLossBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "predictions"),
    Input("target", "labels, of which 1 and -1 make sense"),
    REDUCTION,
    Output("out", "gradient with respect to self", shape="common", dtype="promotion"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    legacy={ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*INPUTS, "out"),
        rules.supported(*INPUTS, "out"),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("out", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty("self"),
        rules.one_of("reduction", 0, 1, 2),  # the service's: the operator would read past a table
        rules.promoted("self", "target", "grad_output", into="promotion"),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    area="losses",
    torch="nn.functional.soft_margin_loss",
    source="ops-nn page aclnnSoftMarginLossBackward",
)
def soft_margin_loss_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    reduction: Reduction = 1,
) -> AnyArray:
    """Gradient of ``soft_margin_loss(self, target)`` with respect to ``self``.

    With ``e = exp(-self * target)``::

        out = -target * e / (1 + e) * grad_output * factor

    ``factor`` is 1 / element count of the shape that all three inputs broadcast to (mean),
    otherwise 1. NaN where ``e`` overflows: where ``-self * target`` is more than 88.72, as in
    torch. Computed in the promoted dtype of the inputs, FLOAT16 and BF16 in float32; ``out`` may
    have any supported dtype. ``out`` has the broadcast shape. Nothing is summed: if ``self`` was
    smaller, the caller sums.

    Differs from torch: the mean there divides by the element count of ``self`` as passed.
    """
    power = np.exp(-(self * target))
    factor = facts.reciprocal(facts.count("common") if reduction == MEAN else 1)
    return np.multiply(-target * power / (1 + power), grad_output * factor, out=facts.out)
