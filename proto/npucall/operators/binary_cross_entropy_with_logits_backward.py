"""Gradient of the binary cross entropy with logits with respect to the logits."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _binary_cross_entropy as shared
from npucall.operators._numerics import MEAN, REDUCTION, Reduction, sigmoid
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950


@operator(
    "aclnnBinaryCrossEntropyWithLogitsBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "logits"),
    Input("target", "labels, 0 to 1"),
    Input("weight", "factor of each element; 1 if absent", optional=True, c_name="weightOptional"),
    Input(
        "pos_weight",
        "factor of the part that target has; 1 if absent",
        optional=True,
        c_name="posWeightOptional",
    ),
    REDUCTION,
    Output("out", "gradient with respect to self", shape="self", dtype="target"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=shared.with_logits("out"),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("self"),
    area="losses",
    torch="nn.functional.binary_cross_entropy_with_logits",
    source="ops-nn page aclnnBinaryCrossEntropyWithLogitsBackward",
)
def binary_cross_entropy_with_logits_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array | None = None,
    pos_weight: Array | None = None,
    reduction: Reduction = 1,
) -> AnyArray:
    """Gradient of ``binary_cross_entropy_with_logits(self, target)`` with respect to ``self``.

    With ``s = sigmoid(self)``, ``t = target`` and ``p = pos_weight``::

        out = ((p * t + 1 - t) * s - p * t) * grad_output * weight * factor

    ``factor`` is 1 / element count of ``self`` (mean), otherwise 1. ``self``, ``target`` and
    ``out`` have one shape, to which the other inputs broadcast. Computed in the promoted dtype of
    the inputs, FLOAT16 and BF16 in float32; ``out`` has the dtype of ``target``.

    As in torch, except that torch refuses ``grad_output`` of another shape.
    """
    weighted = grad_output if weight is None else grad_output * weight
    if pos_weight is None:
        slope = sigmoid(np.asarray(self)) - target
    else:
        positive = pos_weight * target
        slope = (positive + 1 - target) * sigmoid(np.asarray(self)) - positive
    factor = facts.reciprocal(facts.count("self") if reduction == MEAN else 1)
    return np.multiply(slope * weighted, factor, out=facts.out)
