"""Gradient of the smooth mean absolute error with respect to its input."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import MEAN, REDUCTION, Reduction
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_out", "self", "target")


@operator(
    "aclnnSmoothL1LossBackward",
    Input("grad_out", "gradient of the loss with respect to the forward result"),
    Input("self", "predictions"),
    Input("target", "labels"),
    REDUCTION,
    Attribute("beta", Kind.FLOAT, "distance from which on the loss is linear; 0 or more"),
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
        rules.supported(*INPUTS, "grad_input"),
        rules.rank_at_most(8, *INPUTS),
        rules.one_of("reduction", 0, 1, 2),
        rules.not_negative("beta"),
        rules.promoted(*INPUTS, into="promotion"),
        rules.supported("promotion", blames=INPUTS),
        rules.castable("promotion", to="grad_input"),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    area="losses",
    torch="nn.functional.smooth_l1_loss",
    source="ops-nn page aclnnSmoothL1LossBackward",
)
def smooth_l1_loss_backward(
    facts: Facts,
    grad_out: Array,
    self: Array,
    target: Array,
    reduction: Reduction = 1,
    beta: float = 1.0,
) -> AnyArray:
    """Gradient of ``smooth_l1_loss(self, target, beta)`` with respect to ``self``.

    With ``d = self - target``::

        grad_input = -grad_out * factor              where d <= -beta
        grad_input =  grad_out * factor              where d >= beta
        grad_input =  d / beta * grad_out * factor   elsewhere, so NaN where d is

    ``factor`` is 1 / element count of ``self`` as passed (mean), also if the other inputs make the
    shape larger, otherwise 1. ``beta`` is a float32; with 0 the gradient at ``d = 0`` is that of
    ``d < 0``. Computed in the promoted dtype of the inputs. ``grad_input`` has the shape that the
    inputs broadcast to. Nothing is summed: if ``self`` was smaller, the caller sums.

    As ``aten.smooth_l1_loss_backward`` in torch, except that torch refuses inputs of different
    dtypes. Devices differ where ``beta`` is small: Atlas A2 divides by ``beta + 1e-6``, and below
    1e-6 Ascend 950 gives NaN where ``abs(d) <= beta``.
    """
    distance = np.subtract(self, target)
    slope = np.where(distance >= beta, 1, distance / beta)
    factor = facts.reciprocal(facts.count("self") if reduction == MEAN else 1)
    return np.multiply(np.where(distance <= -beta, -1, slope) * grad_out, factor, out=facts.out)
