"""Gradient of softplus with respect to its input."""

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
from npucall.dtypes import (
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    Array,
)
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_BF16, WITHOUT_BF16 = (*FLOATS, DOUBLE), (FLOAT, FLOAT16, DOUBLE)


@operator(
    "aclnnSoftplusBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator; may be integers"),
    Attribute("beta", Kind.SCALAR, "the forward operator's factor in the exponent"),
    Attribute("threshold", Kind.SCALAR, "from which beta * self on the operator is linear"),
    Output("grad_input", "gradient with respect to self", shape="self", dtype="grad_output"),
    products={A2: WITH_BF16, A3: WITH_BF16, ASCEND_950: WITH_BF16, ASCEND_910: WITHOUT_BF16},
    legacy={ASCEND_310P: WITHOUT_BF16, ASCEND_310B: WITHOUT_BF16},
    checks=(
        # beta and threshold are the service's: the operator would crash.
        rules.present("grad_output", "self", "grad_input", "beta", "threshold"),
        rules.supported("grad_output"),
        rules.supported("self", besides=(INT8, INT16, INT32, INT64, UINT8, BOOL)),
        rules.supported("grad_input"),
        rules.rank_at_most(8, "grad_output", "self", "grad_input"),
        rules.same_shape("self", "grad_output"),
        rules.same_shape("self", "grad_input"),
        rules.real("beta", "threshold"),  # the service's; what the operator does is not known
        rules.succeed_if_empty("grad_output", "self", "grad_input"),
    ),
    kernel_dtype=rules.short_if_all("grad_output", "self"),
    over=elementwise("self"),
    sample=Sample(attributes={"beta": 2.0, "threshold": 1.0}),
    area="activations",
    torch="nn.functional.softplus",
    source="ops-nn page aclnnSoftplusBackward",
)
def softplus_backward(
    facts: Facts, grad_output: Array, self: Array, beta: float, threshold: float
) -> AnyArray:
    """Gradient of ``softplus(self, beta, threshold)``, which is ``ln(1 + e^(beta self)) / beta``.

    ::

        grad_input = grad_output                               where beta * self > threshold
        grad_input = grad_output / (1 + e^(-beta * self))      elsewhere

    NaN where ``self`` is NaN. ``beta`` and ``threshold`` are converted to float32. All tensors have
    one shape. Computed in FLOAT, DOUBLE included, or in FLOAT16 or BF16 where that is the dtype of
    both inputs; ``grad_input`` has, unless given, the dtype of ``grad_output``.

    Differs from torch, which computes float64 in float64, refuses inputs of different dtypes, and
    overflows to NaN where ``e^(beta * self)`` does below the threshold.
    """
    exponent = self * beta
    return np.where(exponent > threshold, grad_output, grad_output / (1 + np.exp(-exponent)))
