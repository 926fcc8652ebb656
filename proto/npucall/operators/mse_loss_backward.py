"""Gradient of the mean squared error with respect to its input."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import MEAN, REDUCTION, Reduction
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "self", "target")


@operator(
    "aclnnMseLossBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "predictions"),
    Input("target", "labels"),
    REDUCTION,
    Output("out", "gradient with respect to self", shape="common", dtype="self"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_310P: HALF_AND_SINGLE},
    legacy={ASCEND_910: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*INPUTS, "out"),
        rules.same_dtype("grad_output", "target", as_="self"),
        rules.supported("self", "out"),
        rules.one_of("reduction", 0, 1, 2),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("out", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("common"),
    area="losses",
    torch="nn.functional.mse_loss",
    source="ops-nn page aclnnMseLossBackward",
)
def mse_loss_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    reduction: Reduction = 1,
) -> AnyArray:
    """Gradient of ``mse_loss(self, target)`` with respect to ``self``.

    ::

        out = (self - target) * factor * 2 * grad_output

    ``factor`` is 1 / element count of ``self`` as passed (mean), also if the other inputs make the
    shape larger, otherwise 1. All inputs have one dtype, in which the operator computes; ``out``
    may have any supported dtype. ``out`` has the shape that the inputs broadcast to. Nothing is
    summed: if ``self`` was smaller, the caller sums.

    As ``aten.mse_loss_backward`` in torch; autograd sums over the axes along which ``self`` was
    broadcast.
    """
    factor = facts.reciprocal(facts.count("self") if reduction == MEAN else 1)
    return np.multiply((self - target) * factor * 2, grad_output, out=facts.out)
