"""Gradient of the Kullback-Leibler divergence with respect to its target, community kernel."""

from npucall.declare import Facts, elementwise, operator, rules
from npucall.dtypes import FLOATS, AnyArray, Array
from npucall.operators import _kl_div_target as shared
from npucall.operators._numerics import MEAN, Reduction
from npucall.products import A2


@operator(
    shared.NAME,
    *shared.parameters(shared.REDUCTION, shape="common"),
    variant="community",
    products={A2: FLOATS},
    checks=shared.community_checks(),
    kernel_dtype=rules.float16_if_all(*shared.INPUTS),
    over=elementwise("common", widen=False),
    area="losses",
    torch="nn.functional.kl_div",
    source="community custom operator kl_div_target_backward",
)
def kl_div_target_backward_community(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    reduction: Reduction = 1,
    log_target: bool = False,
) -> AnyArray:
    """Gradient of ``kl_div(self, target)`` with respect to ``target``, as that kernel computes.

    ::

        grad_target = grad_output * (ln(target) + 1 - self), 0 where target is 0
        grad_target = grad_output * (target + 1 - self) * exp(target)   if log_target

    divided for mean by the element count of the shape that the three inputs broadcast to.
    Otherwise as the variant ``documented``, except that any format is accepted.
    """
    factor = facts.reciprocal(facts.count("common") if reduction == MEAN else 1)
    return shared.masked_gradient(facts, grad_output, self, target, factor, log_target=log_target)
