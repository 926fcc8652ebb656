"""The exponential linear unit."""

from math import isfinite

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
from npucall.declare.twins import in_place
from npucall.dtypes import DOUBLE, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import chosen
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_BF16, WITHOUT_BF16 = (*FLOATS, DOUBLE), (*HALF_AND_SINGLE, DOUBLE)


@operator(
    "aclnnElu",
    Input("self", "any numbers"),
    Attribute("alpha", Kind.SCALAR, "factor of the negative part"),
    Attribute("scale", Kind.SCALAR, "factor of the whole"),
    Attribute("input_scale", Kind.SCALAR, "factor in the exponent"),
    Output("out", "the numbers, those below 0 bent", shape="self", dtype="self"),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT_BF16,
        ASCEND_310P: WITHOUT_BF16,
    },
    legacy={ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", "alpha", "scale", "input_scale", "out"),
        rules.supported("self"),  # BF16 is refused where the product has none: the service's
        rules.real("scale", "alpha", "input_scale"),
        rules.castable("self", to="out"),
        rules.same_shape("out", "self"),
        rules.rank_at_most(8, "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"alpha": 1.5, "scale": 1.25, "input_scale": 0.5}, least=-0.9),
    area="activations",
    torch="nn.functional.elu",
    source="ops-nn page aclnnElu",
)
def elu(facts: Facts, self: Array, alpha: float, scale: float, input_scale: float) -> AnyArray:
    """Exponential linear unit of ``self``, times ``scale``.

    ::

        out = scale * self                                          where self > 0
        out = scale * alpha * (e^(self * input_scale) - 1)          elsewhere
        out = -scale * alpha    elsewhere, if alpha or input_scale is infinite or NaN

    NaN where ``self`` is NaN. The three numbers are converted to float32. Computed in the dtype of
    ``self``, FLOAT16 and BF16 in float32; ``out`` may have any dtype that this can be cast to.

    As in torch, except for infinite values and NaN: torch computes the second line for them. The
    operator's page does not have the third line, but the software does this.
    """
    x = np.asarray(self)
    if isfinite(alpha * input_scale):
        bent = np.expm1(x * input_scale) * alpha * scale
    else:
        bent = np.full_like(x, -alpha * scale)
    return chosen(x <= 0, bent, x * scale, out=facts.out)


inplace_elu = in_place(elu)
