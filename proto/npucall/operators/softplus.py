"""Softplus, a smooth rectifier."""

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Input,
    Kind,
    Output,
    Sample,
    elementwise,
    operator,
    rules,
)
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import chosen
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

LINEAR = 40.0
"""From here on ln(1 + e^x) is x, also in float64; and e^x is far from too large in float32."""


@operator(
    "aclnnSoftplus",
    Input("self", "any numbers"),
    Attribute("beta", Kind.SCALAR, "factor in the exponent"),
    Attribute("threshold", Kind.SCALAR, "from which beta * self on the operator is linear"),
    Output("out", "the activations", shape="self", dtype="self"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    # Its page does not list Ascend 950, for which its source has a list of dtypes and a kernel.
    legacy={ASCEND_950: FLOATS, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("self", "beta", "threshold", "out"),
        rules.supported("self"),
        rules.real("beta", "threshold"),
        rules.castable("self", to="out"),
        rules.rank_at_most(8, "self"),
        rules.same_shape("self", "out"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"beta": 2.0, "threshold": 1.0}, least=-0.9),
    area="activations",
    torch="nn.functional.softplus",
    source="ops-nn page aclnnSoftplus",
)
def softplus(facts: Facts, self: Array, beta: float, threshold: float) -> AnyArray:
    """Softplus of ``self``.

    ::

        out = self                             where beta * self > threshold
        out = ln(1 + e^(beta * self)) / beta   elsewhere

    NaN where ``self`` is NaN. ``beta`` and ``threshold`` are converted to float32. With a ``beta``
    of 0 the result is infinite, or NaN where ``self`` is no finite number. Computed in float32, and
    rounded to the dtype of ``self``; ``out`` may have any dtype that this can be cast to.

    As in torch, except that torch overflows to infinity where ``e^(beta * self)`` does below the
    threshold.
    """
    x = np.asarray(self)
    exponent = x * beta
    bent = np.log1p(np.exp(exponent)) / beta
    return chosen(exponent > min(LINEAR, threshold), x, bent, out=facts.out)
