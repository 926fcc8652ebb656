"""Gradient of hardsigmoid with respect to its input."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

END = 3
"""Where hardsigmoid is constant: from here on, and up to -END."""
SIXTH = float(np.float32(1 / 6))


@operator(
    "aclnnHardsigmoidBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator"),
    Output("out", "gradient with respect to self", shape="self", dtype="promotion"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("grad_output", "self", "out"),
        rules.supported("grad_output", "self"),
        rules.promoted("grad_output", "self", into="promotion"),
        rules.castable("promotion", to="out"),
        rules.rank_at_most(8, "grad_output", "self", "out"),
        rules.same_shape("self", "grad_output"),
        rules.same_shape("self", "out"),
        rules.succeed_if_empty("grad_output", "self", "out"),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("self"),
    area="activations",
    torch="nn.functional.hardsigmoid",
    source="ops-nn page aclnnHardsigmoidBackward",
)
def hardsigmoid_backward(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``hardsigmoid(self)``, which is ``relu6(self + 3) / 6``.

    ::

        out = grad_output / 6     where -3 < self < 3, the sixth as a float32
        out = 0                   elsewhere, NaN among it

    All tensors have one shape. The operator computes in the promoted dtype of both inputs, and
    ``out`` has that dtype unless given. On Ascend 950 the device gives 0 for the largest FLOAT
    below 3 too.

    As in torch, except that torch refuses inputs of different dtypes.
    """
    within = np.logical_and(self > -END, self < END)
    return np.where(within, grad_output * SIXTH, np.zeros_like(grad_output))
