"""Gradient of the binary cross entropy with respect to its input."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators import _binary_cross_entropy as shared
from npucall.operators._numerics import MEAN, REDUCTION, Reduction
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("self", "grad_output", "target", "weight")
LEAST = 1e-12
"""What the variance ``self * (1 - self)`` is at least, as in torch."""


@operator(
    "aclnnBinaryCrossEntropyBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "probabilities"),
    Input("target", "labels, 0 to 1"),
    Input("weight", "factor of each element; 1 if absent", optional=True, c_name="weightOptional"),
    REDUCTION,
    Output("out", "gradient with respect to self", shape="self", dtype="promotion"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_output", "self", "target", "out"),
        *shared.output_rank("out"),
        rules.supported("self", "grad_output", "target", "out", "weight"),
        rules.same_format("self", "target"),
        rules.same_format("self", "weight"),
        *shared.if_self_has_elements(
            rules.same_shape("out", "self"),
            shared.fits_self("target"),
            shared.fits_self("weight"),
            shared.fits_self("grad_output"),
        ),
        rules.one_of("reduction", 0, 1, 2),
        rules.promoted(*INPUTS, into="promotion"),
        rules.castable("promotion", to="out"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("self"),
    area="losses",
    torch="nn.functional.binary_cross_entropy",
    source="ops-nn page aclnnBinaryCrossEntropyBackward",
)
def binary_cross_entropy_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    weight: Array | None = None,
    reduction: Reduction = 1,
) -> AnyArray:
    """Gradient of ``binary_cross_entropy(self, target, weight)`` with respect to ``self``.

    ::

        out = grad_output * weight * (self - target) / max(self * (1 - self), 1e-12) * factor

    ``factor`` is 1 / element count of ``self`` (mean), otherwise 1. The operator does not check
    that ``self`` is within 0 to 1; outside, the divisor is 1e-12. ``out`` has the shape of
    ``self``, to which the other inputs broadcast; computed in the promoted dtype of the inputs,
    FLOAT16 and BF16 in float32, and ``out`` may have any supported dtype.

    As ``aten.binary_cross_entropy_backward`` in torch, except that torch refuses inputs of
    different dtypes or shapes.
    """
    weighted = grad_output if weight is None else grad_output * weight
    factor = facts.reciprocal(facts.count("self") if reduction == MEAN else 1)
    variance = np.maximum(self * np.subtract(1, self), LEAST)
    return np.multiply(weighted * (self - target) / variance, factor, out=facts.out)
