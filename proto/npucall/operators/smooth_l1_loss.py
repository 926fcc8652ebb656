"""Smooth mean absolute error."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, elementwise, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators import _losses as shared
from npucall.operators._numerics import REDUCTION, Reduction

INPUTS = ("self", "target")


@operator(
    "aclnnSmoothL1Loss",
    Input("self", "predictions"),
    Input("target", "labels"),
    REDUCTION,
    Attribute("beta", Kind.FLOAT, "distance from which on the loss is linear; 0 or more"),
    Output("result", "the loss", shape="reduced", dtype="promotion"),
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present(*INPUTS, "result"),
        rules.supported(*INPUTS),
        rules.promoted(*INPUTS, into="promotion"),
        rules.castable("promotion", to="result"),
        rules.one_of("reduction", 0, 1, 2),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        *shared.reduced("common", into="reduced"),
        shared.whole("result", "common", "what the inputs broadcast to"),
        rules.not_negative("beta"),
        shared.single("result"),
        shared.filled_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common", sum_to="kept", factor=shared.factor_of("common")),
    area="losses",
    torch="nn.functional.smooth_l1_loss",
    source="ops-nn page aclnnSmoothL1Loss",
)
def smooth_l1_loss(
    facts: Facts, self: Array, target: Array, reduction: Reduction = 1, beta: float = 1.0
) -> AnyArray:
    """Smooth mean absolute error of ``self`` against ``target``.

    With ``d = abs(self - target)``::

        0.5 * d * d / beta    where d < beta
        d - 0.5 * beta        elsewhere, so NaN where d is

    for each element of the shape that both broadcast to; their sum, or their mean, which is the sum
    times 1 / element count of that shape. ``beta`` is a float32; with 0 the loss is ``d``. Nothing
    is rounded before the sum, which is rounded once to the promoted dtype of the inputs, then to
    that of ``result``. With a reduction, ``result`` has one element and any rank: the page says
    (1,), callers pass (). Without elements the mean is NaN and the sum is 0.

    As in torch, except that torch refuses inputs of different dtypes. Ascend 950 gives 0 where d is
    less than a ``beta`` below 1e-6; Atlas A2 multiplies by 1 / beta.
    """
    del reduction
    distance = np.abs(np.subtract(self, target))
    near = 0.5 * distance * distance / beta
    return np.where(distance < beta, near, distance - 0.5 * beta)
