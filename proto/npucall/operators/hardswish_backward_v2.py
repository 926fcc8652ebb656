"""Gradient of hardswish with respect to its input, ends of the interval excluded."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

END = 3
"""Where the slope of hardswish is constant: from here on, and up to -END."""


@operator(
    "aclnnHardswishBackwardV2",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator"),
    Output("out", "gradient with respect to self", shape="self", dtype="self"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    legacy={ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_output", "self", "out"),
        rules.supported("grad_output", "self"),
        rules.same_dtype("grad_output", as_="self"),
        rules.same_dtype("out", as_="self"),
        rules.rank_at_most(8, "grad_output", "self"),
        rules.same_shape("grad_output", "self"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("grad_output", "self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    area="activations",
    torch="nn.functional.hardswish",
    source="ops-nn page aclnnHardswishBackwardV2",
)
def hardswish_backward_v2(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``hardswish(self)``, which is ``self * relu6(self + 3) / 6``.

    ::

        out = 0                                 where self <= -3
        out = grad_output * (self / 3 + 0.5)    where -3 < self < 3
        out = grad_output                       where self >= 3 or NaN

    All tensors have one shape and one dtype. As in torch, except for NaN: torch gives
    ``grad_output`` or NaN, depending on its position in the array.
    """
    del facts
    return without_ends(grad_output, self)


def without_ends(grad_output: Array, self: Array) -> AnyArray:
    """The gradient whose slanted part has no ends."""
    inner = np.where(self < END, grad_output * (self / 3 + 0.5), grad_output)
    return np.where(self <= -END, np.zeros_like(grad_output), inner)
