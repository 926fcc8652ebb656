"""Gradient of the Gaussian error linear unit with respect to its input, of either form."""

from npucall.declare import Attribute, Facts, Input, Kind, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._gelu import erf_derivative, tanh_derivative
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "self")


@operator(
    "aclnnGeluBackwardV2",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator"),
    Attribute("approximate", Kind.STRING, "none: the form with erf; tanh: its approximation"),
    Output("grad_input", "gradient with respect to self", shape="common", dtype="promotion"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*INPUTS, "grad_input", "approximate"),
        rules.promoted(*INPUTS, into="promotion"),
        rules.bfloat16_if_product_has("promotion", blames=INPUTS),
        rules.supported("promotion", blames=INPUTS),
        rules.same_dtype("grad_input", as_="promotion"),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
        rules.one_of("approximate", "none", "tanh"),
        rules.succeed_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    area="activations",
    torch="nn.functional.gelu",
    source="ops-nn page aclnnGeluBackwardV2",
)
def gelu_backward_v2(
    facts: Facts, grad_output: Array, self: Array, approximate: str = "none"
) -> AnyArray:
    """Gradient of ``gelu(self, approximate)`` with respect to ``self``.

    With ``x = self``, and for ``tanh`` ``u = sqrt(2 / pi) * (x + 0.044715 x^3)``::

        none:  grad_input = grad_output * ((1 + erf(x / sqrt(2))) / 2
                            + x * e^(-x^2 / 2) / sqrt(2 pi))
        tanh:  grad_input = grad_output * ((1 + tanh u) / 2
                            + x / 2 * (1 - tanh(u)^2) * sqrt(2 / pi) * (1 + 0.134145 x^2))

    ``grad_input`` has the shape that the inputs broadcast to, of any rank, and their promoted
    dtype, so an integer together with a float is accepted. NaN where ``self`` is infinite, as in
    torch.

    As in torch, except that torch neither broadcasts nor promotes.
    """
    derivative = erf_derivative if approximate == "none" else tanh_derivative
    return (grad_output * derivative(self)).astype(facts.dtype)
