"""Kullback-Leibler divergence."""

from collections.abc import Mapping
from math import nan
from typing import Any

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    choice,
    elementwise,
    operator,
    rules,
)
from npucall.declare.draft import Draft
from npucall.dtypes import AnyArray, Array
from npucall.operators import _losses as shared
from npucall.operators._numerics import BATCHMEAN, KL_WORDS, KlReduction, kl_factor

INPUTS = ("self", "target")


def factor(facts: Facts, attributes: Mapping[str, Any]) -> np.floating[Any]:
    """What the sum is multiplied by."""
    return kl_factor(facts, attributes["reduction"], "common")


def of_nothing(draft: Draft) -> float | None:
    """What the loss of no elements is: batchmean divides by the first extent of ``self``."""
    if draft.attribute("reduction") != BATCHMEAN:
        return shared.of_nothing(draft)
    return nan if draft.shape("self")[:1] == (0,) else 0.0


def is_reduced_and_empty(draft: Draft) -> bool:
    """Whether the output is filled without a look at how the inputs broadcast."""
    return shared.is_reduced(draft) and any(0 in draft.shape(name) for name in INPUTS)


@operator(
    "aclnnKlDiv",
    Input("self", "log-probabilities"),
    Input("target", "probabilities, or their logarithms if log_target"),
    choice("reduction", *KL_WORDS, other="no other"),
    Attribute("log_target", Kind.BOOL, "target holds logarithms"),
    Output("out", "the loss", shape="result", dtype="promotion"),
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present(*INPUTS, "out"),
        rules.supported(*INPUTS, "out"),
        rules.promoted(*INPUTS, into="promotion"),
        rules.castable("promotion", to="out"),
        rules.rank_at_most(8, *INPUTS),
        rules.one_of("reduction", 0, 1, 2, 3),
        rules.when(is_reduced_and_empty, rules.one_element("out"), "empty, any other reduction"),
        rules.fill_if_empty(
            *INPUTS, fill=of_nothing, meaning=f"{shared.OF_NOTHING}, one of them for a batchmean"
        ),
        rules.broadcast(*INPUTS, into="common"),
        *shared.reduced("common"),
        shared.whole("out", "common", "what the inputs broadcast to"),
        shared.single("out"),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common", sum_to="kept", factor=factor),
    area="losses",
    torch="nn.functional.kl_div",
    source="ops-math page aclnnKlDiv",
)
def kl_div(
    facts: Facts, self: Array, target: Array, reduction: KlReduction = 1, log_target: bool = False
) -> AnyArray:
    """Kullback-Leibler divergence of ``target`` from the logarithms ``self``.

    ::

        target * (ln(target) - self)        0 * -self where target is 0
        exp(target) * (target - self)       if log_target

    for each element of the shape that both broadcast to; their sum, or their mean or batchmean,
    which are the sum times 1 / element count, or 1 / first extent, of that shape. Nothing is
    rounded before the sum, which is rounded once to the promoted dtype of the inputs, then to that
    of ``out``. NaN where ``target`` is below 0. With a reduction, ``out`` has one element and any
    rank: the page says (1,), callers pass (). Without elements the mean is NaN and the sum is 0;
    the batchmean is NaN if the first extent of ``self`` is 0, otherwise 0.

    Differs from torch: batchmean there divides by ``self.size(0)`` also if ``target`` is larger,
    and some infinite targets give NaN there and infinity here. The page says that a target of 0
    gives NaN, but the kernels and torch give 0. Reductions other than 0 to 3 are refused, although
    the gradient treats them as none.
    """
    if log_target:
        return np.multiply(np.exp(target), np.subtract(target, self), out=facts.out)
    logarithm = np.log(np.where(np.equal(target, 0), 1, target))
    return np.multiply(target, logarithm - self, out=facts.out)
