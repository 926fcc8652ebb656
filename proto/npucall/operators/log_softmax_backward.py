"""Gradient of log-softmax with respect to its input."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("output", "grad_output")
"""In the order in which the software looks at them."""


@operator(
    "aclnnLogSoftmaxBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("output", "the forward result, logarithms of probabilities"),
    Attribute("dim", Kind.INT64, "the dimension along which probabilities sum to 1"),
    Output("out", "gradient with respect to the input", shape="grad_output", dtype="grad_output"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*INPUTS, "out"),
        rules.except_on((ASCEND_950,), rules.succeed_if_empty(*INPUTS)),
        rules.bfloat16_if_product_has(*INPUTS),
        rules.supported(*INPUTS),
        rules.same_dtype("output", as_="grad_output"),
        rules.rank_at_most(8, *INPUTS),
        rules.same_shape("grad_output", "output"),
        rules.same_shape("grad_output", "out"),
        rules.dim_of("grad_output"),
        rules.on((ASCEND_950,), rules.succeed_if_empty(*INPUTS)),
        # The software converts to any dtype, and checks none.
        rules.supported("out"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=rows("dim", sum_of=lambda _, grad_output, __: grad_output),
    sample=Sample(attributes={"dim": 1}),
    area="activations",
    torch="nn.functional.log_softmax",
    source="ops-nn page aclnnLogSoftmaxBackward",
)
def log_softmax_backward(facts: Facts, grad_output: Array, output: Array, dim: int) -> AnyArray:
    """Gradient of ``log_softmax(x, dim)`` with respect to ``x``, from the result ``output``.

    With the sum along ``dim``::

        out = grad_output - e^output * sum(grad_output)

    Both inputs and ``out`` have one shape, both inputs one dtype; rank 0 counts as rank 1.
    Computed in float32 and rounded once to the inputs' dtype. ``out`` may have any dtype that the
    product takes: it is converted last. ``dim`` counts from the end if it is negative.

    As in torch.
    """
    return grad_output - np.exp(output) * facts.row_sum(np.asarray(grad_output))
