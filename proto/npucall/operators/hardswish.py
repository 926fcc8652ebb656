"""Hardswish: what approximates swish by lines and a parabola."""

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950


@operator(
    "aclnnHardswish",
    Input("self", "any numbers"),
    Output("out", "the activations", shape="self", dtype="self", const=True),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    legacy={ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("self", "out"),
        rules.supported("self", "out"),
        rules.same_shape("self", "out"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(least=-0.9),
    area="activations",
    torch="nn.functional.hardswish",
    source="ops-nn page aclnnHardswish",
)
def hardswish(facts: Facts, self: Array) -> AnyArray:
    """Hardswish of ``self``.

    ::

        self * min(max(self + 3, 0), 6) / 6

    ``self`` itself from 3 upwards; 0 from -3 downwards, but NaN for minus infinity, as on Atlas A2
    and A3 (-0 on Ascend 950). NaN where ``self`` is NaN. Computed in float32, with the sixth as a
    factor, and rounded to nearest even (Ascend 950 rounds halves of FLOAT16 and BF16 away from
    zero) to the dtype of ``self``, then to that of ``out``. Any number of dimensions.

    As in torch, except for numbers so large that six times the number is infinite.
    """
    share = np.clip(np.add(self, 3), 0, 6) * facts.reciprocal(6)
    return np.multiply(self, share, out=facts.out)


inplace_hardswish = in_place(hardswish)
