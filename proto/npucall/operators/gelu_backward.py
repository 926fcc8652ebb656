"""Gradient of the Gaussian error linear unit, its tanh form, with respect to its input."""

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._gelu import tanh_derivative
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "self")


@operator(
    "aclnnGeluBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator"),
    Output(
        "grad_input", "gradient with respect to self", shape="common", dtype="promotion", const=True
    ),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*INPUTS, "grad_input"),
        rules.promoted(*INPUTS, into="promotion"),
        rules.bfloat16_if_product_has("promotion", blames=INPUTS),
        rules.supported("promotion", blames=INPUTS),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*INPUTS),
        # The software converts to any dtype, and checks none; what a NaN is as an integer is open.
        rules.castable("promotion", to="grad_input"),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    area="activations",
    torch="nn.functional.gelu",
    source="ops-nn page aclnnGeluBackward",
)
def gelu_backward(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``gelu(self, approximate="tanh")`` with respect to ``self``.

    With ``x = self`` and ``u = sqrt(2 / pi) * (x + 0.044715 x^3)``::

        grad_input = grad_output * ((1 + tanh u) / 2
                     + x / 2 * (1 - tanh(u)^2) * sqrt(2 / pi) * (1 + 0.134145 x^2))

    The page of the operator prints the form with erf; the kernel computes this one. ``grad_input``
    has the shape that the inputs broadcast to. Inputs are converted to their promoted dtype, so an
    integer together with a float is accepted, and the result is rounded to it; ``grad_input`` may
    have any dtype that it can be cast to. NaN where ``self`` is infinite, as in torch.

    Differs from torch: the default there is the form with erf (aclnnGeluBackwardV2).
    """
    return (grad_output * tanh_derivative(self)).astype(facts.dtype)
