"""Gradient of the hyperbolic tangent with respect to its input."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import DOUBLE, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "output")
WITH_BF16 = (*FLOATS, DOUBLE)
WITHOUT = (*HALF_AND_SINGLE, DOUBLE)


@operator(
    "aclnnTanhBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("output", "the forward result"),
    Output(
        "grad_input",
        "gradient with respect to the forward input",
        shape="common",
        dtype="grad_output",
    ),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT,
        ASCEND_310P: WITHOUT,
    },
    legacy={ASCEND_310B: WITHOUT},
    checks=(
        rules.present(*INPUTS, "grad_input"),
        rules.supported(*INPUTS, "grad_input"),
        rules.same_dtype("grad_output", as_="output"),
        rules.same_dtype("grad_output", as_="grad_input"),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=elementwise("common"),
    area="activations",
    torch="tanh",
    source="ops-math page aclnnTanhBackward",
)
def tanh_backward(facts: Facts, grad_output: Array, output: Array) -> AnyArray:
    """Gradient of ``tanh(x)`` with respect to ``x``, from the result ``output``.

    ::

        grad_input = grad_output * (1 - output^2)

    ``grad_input`` has the shape that the inputs broadcast to; all tensors have one dtype. Computed
    in it, FLOAT16 and BF16 in float32, as ``(1 - output) * (1 + output)``, which loses no digits
    where ``output`` is nearly 1.

    As in torch, except that torch also takes complex numbers.
    """
    slope = np.subtract(1, output) * np.add(1, output)
    return np.multiply(grad_output, slope, out=facts.out)
