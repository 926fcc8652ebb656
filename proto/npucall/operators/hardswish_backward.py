"""Gradient of hardswish with respect to its input, ends of the interval included."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

END = 3
"""Where the slope of hardswish is constant: from here on, and up to -END."""


@operator(
    "aclnnHardswishBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator"),
    Output("out", "gradient with respect to self", shape="self", dtype="self"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    legacy={ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_output", "self", "out"),
        rules.supported("self", "grad_output"),
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
    source="ops-nn page aclnnHardswishBackward",
)
def hardswish_backward(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``hardswish(self)``, which is ``self * relu6(self + 3) / 6``.

    ::

        out = grad_output * 0                   where self < -3
        out = grad_output * (self / 3 + 0.5)    where -3 <= self <= 3
        out = grad_output                       where self > 3 or NaN

    All tensors have one shape and one dtype.

    Differs from torch and from aclnnHardswishBackwardV2 at exactly -3 and 3, where this operator
    gives -0.5 and 1.5 times ``grad_output`` and the others 0 and 1 times; and below -3, where this
    operator gives NaN for an infinite or NaN ``grad_output`` and the others 0. The Atlas A2 kernel
    gives NaN for a NaN of FLOAT16; the reference does not.
    """
    inner = np.where(self <= END, self / 3 + 0.5, np.ones_like(self))
    slope = np.where(self < -END, np.zeros_like(self), inner)
    return np.multiply(grad_output, slope, out=facts.out)
