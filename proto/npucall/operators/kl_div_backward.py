"""Gradient of the Kullback-Leibler divergence with respect to its input."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import KL_REDUCTION, KlReduction, kl_factor
from npucall.products import A2, A3, ASCEND_310P, ASCEND_910, ASCEND_950

TENSORS = ("grad_output", "self", "target", "out")


@operator(
    "aclnnKlDivBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "log-probabilities; only shape and dtype matter", read=False),
    Input("target", "probabilities, or their logarithms if log_target"),
    KL_REDUCTION,
    Attribute("log_target", Kind.BOOL, "target holds logarithms"),
    Output("out", "gradient with respect to self", shape="self", dtype="self"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS},
    legacy={ASCEND_910: HALF_AND_SINGLE, ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present(*TENSORS),
        rules.castable("self", to="out"),
        rules.supported(*TENSORS),
        rules.rank_at_most(8, *TENSORS),
        rules.broadcast("self", "target", into="common"),
        rules.expandable("grad_output", to="common", meaning="what self and target broadcast to"),
        rules.same_shape("out", "self"),
        rules.warn_unless("reduction", 0, 1, 2, 3, meaning="the device scales as for none"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.float16_if_all("grad_output", "self", "target"),
    over=elementwise("common", sum_to="self"),
    area="losses",
    torch="nn.functional.kl_div",
    source="README of KlDivLossGrad; pages aclnnKlDivBackward; header aclnn_kl_div_backward.h",
)
def kl_div_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    reduction: KlReduction = 1,
    log_target: bool = False,
) -> AnyArray:
    """Gradient of ``kl_div(self, target)`` with respect to ``self``.

    With ``t = exp(target)`` if ``log_target`` and ``t = target`` otherwise::

        out = sum over the axes that self was stretched along of  -grad_output * t * factor

    ``factor`` is 1 / element count (mean) or 1 / first extent (batchmean) of the shape that
    ``self`` and ``target`` broadcast to, otherwise 1. Computed in float32, or rounded to FLOAT16
    before the sum if all inputs are FLOAT16. ``out`` may have any supported dtype.

    Differs from torch: batchmean there divides by ``self.size(0)`` also if ``target`` is larger,
    and the FLOAT16 mean rounds ``grad_output / count`` before it multiplies.
    """
    weight = np.exp(target) if log_target else target
    return np.multiply(weight * grad_output, -kl_factor(facts, reduction, "common"), out=facts.out)
