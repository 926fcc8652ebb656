"""The hyperbolic tangent."""

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import (
    BOOL,
    FLOATS,
    HALF_AND_SINGLE,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    Array,
)
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INTEGERS = (INT8, INT16, INT32, INT64, UINT8, BOOL)
WITH_BF16, WITHOUT_BF16 = (*FLOATS, *INTEGERS), (*HALF_AND_SINGLE, *INTEGERS)


@operator(
    "aclnnTanh",
    Input("self", "any numbers"),
    Output("out", "between -1 and 1", shape="self", dtype="result"),
    products={A2: WITH_BF16, A3: WITH_BF16, ASCEND_950: WITH_BF16, ASCEND_910: WITHOUT_BF16},
    legacy={ASCEND_310P: WITHOUT_BF16, ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", "out"),
        rules.supported("self"),
        rules.supported("out"),
        rules.float_of("self", into="result"),
        rules.castable("result", to="out"),
        rules.same_format("self", "out"),
        rules.public_format("self", "out"),
        rules.rank_at_most(8, "self"),
        rules.same_shape("self", "out"),
        rules.succeed_if_empty("self", "out"),
    ),
    kernel_dtype=rules.dtype_of("result"),
    over=elementwise("self"),
    sample=Sample(least=-0.9),
    area="activations",
    torch="tanh",
    source="ops-math page aclnnTanh",
)
def tanh(facts: Facts, self: Array) -> AnyArray:
    """Hyperbolic tangent of ``self``.

    ::

        (e^self - e^-self) / (e^self + e^-self)

    Computed in the dtype of ``self``, FLOAT16 and BF16 in float32, integers and BOOL in FLOAT, and
    converted to that of ``out``, which is a float. DOUBLE is refused.

    As in torch, except that torch also takes float64 and complex numbers. Products older than Atlas
    A2 cut ``self`` at 8.8, where the result is 1 within a unit in the last place.
    """
    return np.tanh(self, out=facts.out)


inplace_tanh = in_place(tanh)
