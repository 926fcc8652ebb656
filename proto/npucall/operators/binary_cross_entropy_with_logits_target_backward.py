"""Gradient of the binary cross entropy with logits with respect to its target."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOAT, FLOATS, AnyArray, Array
from npucall.operators import _binary_cross_entropy as shared
from npucall.operators._numerics import MEAN, REDUCTION, Reduction, log_sigmoid
from npucall.products import A2, A3


@operator(
    "aclnnBinaryCrossEntropyWithLogitsTargetBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "logits"),
    Input("target", "labels, 0 to 1; only shape and dtype matter", read=False),
    Input("weight", "factor of each element; 1 if absent", optional=True, c_name="weightOptional"),
    Input(
        "pos_weight",
        "factor of the part that target has; 1 if absent",
        optional=True,
        c_name="posWeightOptional",
    ),
    REDUCTION,
    Output("grad_target", "gradient with respect to target", shape="target", dtype="target"),
    products={A2: FLOATS, A3: FLOATS},
    checks=shared.with_logits("grad_target"),
    kernel_dtype=rules.always(FLOAT),
    over=elementwise("target"),
    area="losses",
    torch="nn.functional.binary_cross_entropy_with_logits",
    source="ops-nn page aclnnBinaryCrossEntropyWithLogitsTargetBackward",
)
def binary_cross_entropy_with_logits_target_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array | None = None,
    pos_weight: Array | None = None,
    reduction: Reduction = 1,
) -> AnyArray:
    """Gradient of ``binary_cross_entropy_with_logits(self, target)`` with respect to ``target``.

    ::

        grad_target = (ln sigmoid(-self) - pos_weight * ln sigmoid(self))
                      * grad_output * weight * factor

    which is ``-self * grad_output * weight * factor`` if ``pos_weight`` is absent. ``factor`` is 1
    / element count of ``target`` (mean), otherwise 1. ``self``, ``target`` and ``grad_target`` have
    one shape, to which the other inputs broadcast. Computed in FLOAT; ``grad_target`` has the dtype
    of ``target``; the values of ``target`` are not used.

    As in torch, except that torch refuses ``grad_output`` of another shape.
    """
    weighted = grad_output if weight is None else grad_output * weight
    if pos_weight is None:
        slope = -self
    else:
        slope = log_sigmoid(-self) - pos_weight * log_sigmoid(np.asarray(self))
    factor = facts.reciprocal(facts.count("target") if reduction == MEAN else 1)
    return np.multiply(slope * weighted, factor, out=facts.out)
