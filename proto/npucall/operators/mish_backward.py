"""Gradient of Mish."""

import numpy as np

from npucall.declare import Facts, Output, elementwise, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators import _floats as floats

TENSORS = (*floats.BOTH, "grad_input")

_ONE = 40
"""From here on t and the sigmoid are 1 in float64."""


@operator(
    "aclnnMishBackward",
    floats.UPSTREAM,
    floats.GONE_IN,
    Output("grad_input", "gradient with respect to self", "common", "promotion"),
    **floats.ALL,
    checks=(
        rules.present(*TENSORS),
        rules.promoted(*floats.BOTH, into="promotion"),
        rules.castable("self", to="grad_input"),
        rules.supported(*TENSORS),
        rules.rank_at_most(8, *TENSORS),
        rules.broadcast(*floats.BOTH, into="common"),
        rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*floats.BOTH),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    source="ops-nn page aclnnMishBackward, order of its checks",
    area="activations",
    torch="nn.functional.mish",
)
def mish_backward(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``mish(self)`` with respect to ``self``.

    With ``x = self`` and ``t = tanh(ln(1 + e^x))``::

        grad_input = grad_output * (t + x * sigmoid(x) * (1 - t^2))

    In float64, t as w / (w + 2) with w = e^x (e^x + 2). NaN where ``self`` is -inf. Inputs are
    broadcast, and their gradients are not summed. Computed in their promoted dtype.

    As in torch, which neither broadcasts nor promotes.
    """
    x = np.asarray(self, np.float64)
    power = np.exp(np.minimum(x, _ONE))
    double = power * (power + 2)
    t = double / (double + 2)
    slope = t + x * (power / (power + 1)) * (1 - t) * (1 + t)
    return (grad_output * slope).astype(facts.dtype)
