"""Gradient of Mish."""

import numpy as np

from npucall.declare import Facts, Output, elementwise, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators import _floats as floats
from npucall.operators._numerics import sigmoid

TENSORS = (*floats.BOTH, "grad_input")


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

    The slope is computed in float64. NaN where ``self`` is -inf. Inputs are broadcast, and their
    gradients are not summed. Computed in their promoted dtype.

    As in torch, which neither broadcasts nor promotes.
    """
    x = np.asarray(self, np.float64)
    t = np.tanh(np.logaddexp(0, x))
    slope = t + x * sigmoid(x) * (1 - t) * (1 + t)
    return (grad_output * slope).astype(facts.dtype)
