"""Gradient of the sigmoid with respect to its input."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import COMPLEX64, COMPLEX128, DOUBLE, FLOATS, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "output")
DTYPES = (*FLOATS, DOUBLE, COMPLEX64, COMPLEX128)
"""BF16 among them on every product: one without it refuses it for grad_output alone."""


@operator(
    "aclnnSigmoidBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("output", "the forward result"),
    Output(
        "grad_input",
        "gradient with respect to the forward input",
        shape="common",
        dtype="promotion",
    ),
    products={
        A2: DTYPES,
        A3: DTYPES,
        ASCEND_950: DTYPES,
        ASCEND_910: DTYPES,
        ASCEND_310P: DTYPES,
    },
    legacy={ASCEND_310B: DTYPES},
    checks=(
        rules.present(*INPUTS, "grad_input"),
        rules.supported(*INPUTS, "grad_input"),
        rules.bfloat16_if_product_has("grad_output"),
        rules.rank_at_most(8, *INPUTS),
        rules.promoted(*INPUTS, into="promotion"),
        rules.supported("promotion", blames=INPUTS),
        rules.castable("promotion", to="grad_input"),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    area="activations",
    torch="sigmoid",
    source="ops-nn page aclnnSigmoidBackward",
)
def sigmoid_backward(facts: Facts, grad_output: Array, output: Array) -> AnyArray:
    """Gradient of ``sigmoid(x)`` with respect to ``x``, from the result ``output``.

    ::

        grad_input = grad_output * (1 - output) * output

    ``grad_input`` has the shape that the inputs broadcast to. Computed in their promoted dtype,
    FLOAT16 and BF16 in float32; ``grad_input`` may have any supported dtype that it can be cast to,
    so no real one if an input is complex.

    Differs from torch for complex numbers, where torch takes the conjugate of the derivative, and
    in accepting inputs of two dtypes.
    """
    return np.multiply(grad_output * np.subtract(1, output), output, out=facts.out)
