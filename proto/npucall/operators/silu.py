"""The sigmoid linear unit."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import gated
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950


@operator(
    "aclnnSilu",
    Input("self", "any numbers"),
    Output("out", "result", shape="self", dtype="self"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("self", "out"),
        rules.dtype_in("self", *FLOATS),
        rules.dtype_in("out", *FLOATS),
        rules.same_dtype("out", as_="self"),
        rules.supported("self", "out"),
        rules.same_shape("self", "out"),
        rules.succeed_if_empty("self", "out"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    area="activations",
    torch="nn.functional.silu",
    source="ops-nn page aclnnSilu",
)
def silu(facts: Facts, self: Array) -> AnyArray:
    """``self * sigmoid(self)``, also called swish.

    With ``x = self``::

        out = x / (1 + e^-x)

    ``out`` has the shape and dtype of ``self``, of any rank. +inf stays, and -inf gives NaN, as in
    torch.

    As in torch, except that large negative numbers still give a small result where torch's e^-x is
    already infinite.
    """
    x = np.asarray(self)
    return gated(x, x, facts.out)
