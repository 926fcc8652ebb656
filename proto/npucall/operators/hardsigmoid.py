"""Hardsigmoid: what approximates the sigmoid by lines."""

import numpy as np

from npucall.declare import Facts, Input, Output, Sample, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, INT32, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_BF16, WITHOUT_BF16 = (*FLOATS, INT32), (*HALF_AND_SINGLE, INT32)
END = 3
"""From here on it is 1."""


@operator(
    "aclnnHardsigmoid",
    Input("self", "any numbers"),
    Output("out", "between 0 and 1", shape="self", dtype="self"),
    products={A2: WITH_BF16, A3: WITH_BF16, ASCEND_950: WITH_BF16, ASCEND_910: WITHOUT_BF16},
    legacy={ASCEND_310P: WITHOUT_BF16, ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", "out"),
        rules.supported("self"),
        rules.rank_at_most(8, "self"),
        rules.same_shape("self", "out"),
        rules.same_dtype("self", as_="out"),
        rules.same_format("self", "out"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(least=-0.9, integers=range(7)),
    area="activations",
    torch="nn.functional.hardsigmoid",
    source="ops-nn page aclnnHardsigmoid",
)
def hardsigmoid(facts: Facts, self: Array) -> AnyArray:
    """Hardsigmoid of ``self``.

    ::

        min(max(self / 6 + 0.5, 0), 1)

    NaN where ``self`` is NaN. Computed in float32, with the sixth as a factor, and rounded to
    nearest even (Ascend 950 rounds halves of BF16 away from zero). For INT32 the fraction is
    dropped: the result is 1 from 3 upwards, else 0. ``out`` has the dtype of ``self``.

    As in torch, except that torch refuses integers.
    """
    if facts.dtype.kind == "i":
        return np.greater_equal(self, END)
    return np.clip(self * facts.reciprocal(6) + 0.5, 0, 1, out=facts.out)


inplace_hardsigmoid = in_place(hardsigmoid)
