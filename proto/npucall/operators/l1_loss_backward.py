"""Gradient of the mean absolute error with respect to its input."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import MEAN, REDUCTION, Reduction
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "self", "target")


@operator(
    "aclnnL1LossBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "predictions"),
    Input("target", "labels"),
    REDUCTION,
    Output("grad_input", "gradient with respect to self", shape="common", dtype="promotion"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*INPUTS, "grad_input"),
        rules.one_of("reduction", 0, 1, 2),
        rules.promoted(*INPUTS, into="promotion"),
        rules.castable("promotion", to="grad_input"),
        rules.supported("promotion", blames=INPUTS),
        rules.rank_at_most(8, "self", "target", "grad_output", "grad_input"),
        rules.broadcast("self", "grad_output", "target", into="common"),
        rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    area="losses",
    torch="nn.functional.l1_loss",
    source="README of L1LossGrad; ops-nn page aclnnL1LossBackward",
)
def l1_loss_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    reduction: Reduction = 1,
) -> AnyArray:
    """Gradient of ``l1_loss(self, target)`` with respect to ``self``.

    ::

        grad_input = sign(self - target) * grad_output * factor

    ``sign`` is 0 where both are equal, equal infinities among them, and where either is NaN.
    ``factor`` is 1 / element count of the shape that all three inputs broadcast to (mean),
    otherwise 1. Inputs are converted to their promoted dtype, then compared; an integer together
    with a float is accepted. ``grad_input`` has the broadcast shape. Nothing is summed: if ``self``
    was smaller, the caller sums.

    Differs from torch, which sums over the axes along which ``self`` was broadcast, and does not
    count it for the mean if ``grad_output`` makes the shape larger.
    """
    sign = np.subtract(self > target, self < target, dtype=np.float32)
    factor = facts.reciprocal(facts.count("common") if reduction == MEAN else 1)
    return np.multiply(sign, grad_output * factor, out=facts.out)
