"""The leaky rectifier."""

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
    "aclnnLeakyRelu",
    Input("self", "any numbers"),
    Attribute("negative_slope", Kind.SCALAR, "what numbers below 0 are multiplied by"),
    Output("out", "the numbers, those below 0 flattened", shape="self", dtype="self"),
    products={A2: WITH_BF16, A3: WITH_BF16, ASCEND_950: WITH_BF16, ASCEND_910: WITHOUT_BF16},
    legacy={ASCEND_310P: WITHOUT_BF16, ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", "negative_slope", "out"),
        rules.supported("self"),
        rules.castable("self", to="out"),
        rules.rank_at_most(8, "self"),
        rules.same_shape("out", "self"),
        rules.real("negative_slope"),  # the service's; what the operator makes of one is not known
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"negative_slope": 0.25}, least=-0.9),
    area="activations",
    torch="nn.functional.leaky_relu",
    source="ops-nn page aclnnLeakyRelu",
)
def leaky_relu(facts: Facts, self: Array, negative_slope: float) -> AnyArray:
    """Leaky rectifier of ``self``.

    ::

        out = self                     where self > 0
        out = self * negative_slope    elsewhere, 0 and NaN among them

    The slope is converted to float32, and may be negative. Computed in the dtype of ``self``,
    FLOAT16 and BF16 in float32; ``out`` may have any dtype that this can be cast to. Atlas A2 and
    A3 round the slope to the dtype of ``self`` before.

    As in torch, except that torch takes a slope for float64 as it is.
    """
    x = np.asarray(self)
    return chosen(x > 0, x, x * negative_slope, out=facts.out)


inplace_leaky_relu = in_place(leaky_relu)
