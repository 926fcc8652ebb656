"""Mish, a smooth activation."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

_OPEN = 20
"""From here on the factor is 1 in float32, and e^2x is far from too large."""
_CLOSED = -85
"""The factor is e^x for such an x, which float32 holds with few digits only."""


@operator(
    "aclnnMish",
    Input("self", "any numbers"),
    Output("out", "the activations", shape="self", dtype="self"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    # Its page does not list them; its source has one list of dtypes for all older products.
    legacy={ASCEND_950: FLOATS, ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("self", "out"),
        rules.supported("self", "out"),
        rules.same_dtype("self", as_="out"),
        rules.rank_at_most(8, "self"),
        rules.rank_at_most(8, "out"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    area="activations",
    torch="nn.functional.mish",
    source="ops-nn page aclnnMish&aclnnInplaceMish; the order of its checks",
)
def mish(facts: Facts, self: Array) -> AnyArray:
    """``self * tanh(softplus(self))``.

    With ``x = self``::

        out = x * tanh(ln(1 + e^x))

    ``out`` has the shape and dtype of ``self``. +inf stays, and -inf gives NaN, as in torch.
    Computed in float32 and rounded once, by ``tanh(ln(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2)``.
    """
    x = np.asarray(self)
    power = np.exp(np.minimum(x, _OPEN))
    power *= power + 2
    power /= power + 2
    result = np.multiply(x, power, out=facts.out)
    closed = x < _CLOSED
    if closed.any():
        root = np.exp(x[closed] * 0.5)
        result[closed] = x[closed] * root * root
    return result


inplace_mish = in_place(mish)
