"""Gradient of the Kullback-Leibler divergence with respect to its target, CANN's own."""

import numpy as np

from npucall.declare import Facts, elementwise, operator, rules
from npucall.dtypes import FLOAT, FLOATS, AnyArray, Array
from npucall.operators import _kl_div_target as shared
from npucall.operators._numerics import KL_REDUCTION, KlReduction, kl_factor
from npucall.products import A2, A3, ASCEND_950


@operator(
    shared.NAME,
    *shared.parameters(KL_REDUCTION, shape="target"),
    variant="builtin",
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS},
    checks=(
        rules.present(*shared.TENSORS),
        rules.castable("self", to="grad_target"),
        rules.supported(*shared.TENSORS),
        rules.same_dtype("grad_target", as_="target"),
        rules.rank_at_most(8, *shared.TENSORS),
        rules.broadcast("self", "target", into="common"),
        rules.expandable("grad_output", to="common", meaning="what self and target broadcast to"),
        rules.same_shape("grad_target", "target"),
        rules.public_format(*shared.TENSORS),
        rules.warn_unless("reduction", 0, 1, 2, 3, meaning="the device scales as for none"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.always(FLOAT),
    over=elementwise("common", sum_to="target"),
    area="losses",
    torch="nn.functional.kl_div",
    source="ops-nn loss/kl_div_target_loss_grad",
)
def kl_div_target_backward_builtin(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    reduction: KlReduction = 1,
    log_target: bool = False,
) -> AnyArray:
    """Gradient of ``kl_div(self, target)`` with respect to ``target``, as CANN computes it.

    With ``g = grad_output * factor``, ``t = target`` and ``s = self``::

        grad_target = sum of  (g * ln t - g * s) + (g * t) / t
        grad_target = sum of  g * (t - s) * e^t + g * e^t                 if log_target

    over the axes along which ``target`` was broadcast. ``factor`` is 1 / element count (mean) or 1
    / first extent (batchmean) of the shape that ``self`` and ``target`` broadcast to, otherwise 1.
    NaN where ``target`` is 0 or negative, as in torch. ``grad_target`` has shape and dtype of
    ``target``. On Ascend 950 the device uses only the extents of ``self``; the reference does not.

    Differs from torch where ``grad_output`` is 0 and ``target`` negative (torch 0, here NaN), and
    in the divisor of batchmean, for which torch takes ``self.size(0)``.
    """
    gradient = grad_output * kl_factor(facts, reduction, "common")
    if log_target:
        weight = np.exp(target)
        first, last = gradient * (target - self) * weight, gradient * weight
    else:
        first = gradient * np.log(target) - gradient * self
        last = gradient * target / target
    return np.add(first, last, out=facts.out)
