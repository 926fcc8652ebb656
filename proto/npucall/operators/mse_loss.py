"""Mean squared error."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators import _losses as shared
from npucall.operators._numerics import REDUCTION, Reduction

INPUTS = ("self", "target")


@operator(
    "aclnnMseLoss",
    Input("self", "predictions"),
    Input("target", "labels"),
    REDUCTION,
    Output("out", "the loss", shape="result", dtype="promotion"),
    products=shared.PRODUCTS,
    legacy=shared.LEGACY,
    checks=(
        rules.present(*INPUTS, "out"),
        rules.promoted(*INPUTS, into="promotion"),
        rules.supported("promotion", blames=INPUTS),
        rules.supported(*INPUTS, "out"),
        rules.one_of("reduction", 0, 1, 2),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        *shared.reduced("common"),
        rules.same_shape("out", "result", "what the inputs broadcast to, or () if reduced"),
        shared.filled_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common", sum_to="kept", factor=shared.factor_of("common")),
    area="losses",
    torch="nn.functional.mse_loss",
    source="ops-nn page aclnnMseLoss",
)
def mse_loss(facts: Facts, self: Array, target: Array, reduction: Reduction = 1) -> AnyArray:
    """Mean squared error of ``self`` against ``target``.

    ::

        (self - target) ** 2

    for each element of the shape that both broadcast to; their sum, or their mean, which is the sum
    times 1 / element count of that shape. Nothing is rounded before the sum, which is rounded once
    to the promoted dtype of the inputs, then to that of ``out``, which may be any supported dtype.
    Without elements the mean is NaN and the sum is 0.

    Differs from torch, which rounds each element of FLOAT16 before the sum: the mean of 90000, 0
    and 0 is 30000 here and infinite there. Rank 0 passes too, although the page says 1 to 8
    dimensions.
    """
    del reduction
    distance = np.asarray(np.subtract(self, target, out=facts.out))
    return np.multiply(distance, distance, out=distance)
