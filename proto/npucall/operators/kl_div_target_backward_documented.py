"""Gradient of the Kullback-Leibler divergence with respect to its target, as documented."""

from npucall.declare import Facts, elementwise, operator, rules
from npucall.dtypes import FLOATS, AnyArray, Array
from npucall.operators import _kl_div_target as shared
from npucall.operators._numerics import MEAN, Reduction
from npucall.products import A2


@operator(
    shared.NAME,
    *shared.parameters(shared.REDUCTION, shape="common"),
    variant="documented",
    products={A2: FLOATS},
    checks=shared.community_checks(rules.public_format(*shared.TENSORS)),
    kernel_dtype=rules.float16_if_all(*shared.INPUTS),
    over=elementwise("common", widen=False),
    area="losses",
    torch="nn.functional.kl_div",
    source="README of the community custom operator KlDivTargetBackward",
)
def kl_div_target_backward_documented(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    reduction: Reduction = 1,
    log_target: bool = False,
) -> AnyArray:
    """Gradient of ``kl_div(self, target)`` with respect to ``target``, the document's formula.

    ::

        grad_target = grad_output * (ln(target) + 1 - self), 0 where target is 0
        grad_target = grad_output * (target + 1 - self) * exp(target)   if log_target

    divided for mean by ``target.size(0)``, the first extent of ``target`` as passed (1 for rank 0).
    ``grad_target`` has the shape that the three inputs broadcast to: nothing is summed. All tensors
    have one dtype; FLOAT16 rounds after every step, BF16 once.

    Differs from the variant ``community`` in the divisor of mean and in refusing private formats;
    from ``builtin`` and torch in these, in 0 instead of NaN where ``target`` is 0, in the missing
    batchmean and the missing sum.
    """
    factor = facts.reciprocal(facts.first("target") if reduction == MEAN else 1)
    return shared.masked_gradient(facts, grad_output, self, target, factor, log_target=log_target)
