"""Soft margin loss."""

import numpy as np

from npucall.declare import (
    Facts,
    Input,
    Output,
    choice,
    elementwise,
    operator,
    rules,
)
from npucall.dtypes import AnyArray, Array
from npucall.operators import _losses as shared
from npucall.operators._numerics import REDUCTION, Reduction

INPUTS = ("self", "target")


@operator(
    "aclnnSoftMarginLoss",
    Input("self", "predictions"),
    Input("target", "labels, of which 1 and -1 make sense"),
    choice("reduction", *REDUCTION.words, other="any other acts as sum"),
    Output("out", "the loss", shape="result", dtype="promotion"),
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present(*INPUTS, "out"),
        rules.supported(*INPUTS, "out"),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        *shared.reduced("common"),
        rules.same_shape("out", "result", "what the inputs broadcast to, or () if reduced"),
        rules.warn_unless("reduction", 0, 1, 2, meaning="the device adds up as for sum"),
        shared.filled_if_empty(*INPUTS),
        rules.promoted(*INPUTS, into="promotion"),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common", sum_to="kept", factor=shared.factor_of("common")),
    area="losses",
    torch="nn.functional.soft_margin_loss",
    source="ops-nn page aclnnSoftMarginLoss",
)
def soft_margin_loss(
    facts: Facts, self: Array, target: Array, reduction: Reduction = 1
) -> AnyArray:
    """Soft margin loss of ``self`` for the labels ``target``.

    With ``m = -target * self``::

        ln(1 + exp(m)), as max(m, 0) + ln(1 + exp(-abs(m)))

    for each element of the shape that both broadcast to; their sum, or their mean, which is the sum
    times 1 / element count of that shape. Any reduction except 0 and 1 is a sum, with a warning:
    the page has 0 to 2, but the software does not check it. Nothing is rounded before the sum,
    which is rounded once to the promoted dtype of the inputs, then to that of ``out``, which may be
    any supported dtype. Without elements the mean is NaN and the sum is 0.

    Differs from torch and Atlas A2, which are infinite where m is more than 88.72.
    """
    del reduction
    margin = -np.multiply(target, self)
    rest = np.log1p(np.exp(-np.abs(margin)))
    return np.add(np.maximum(margin, 0), rest, out=facts.out)
