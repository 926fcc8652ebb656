"""``x * sigmoid(beta * x)``: Swish and, with a beta of 1.702, FastGelu; and their gradients."""

import numpy as np

from npucall.declare import (
    Attribute,
    Facts,
    Kind,
    Output,
    Sample,
    elementwise,
    operator,
    rules,
)
from npucall.dtypes import AnyArray, Array
from npucall.operators import _floats as floats
from npucall.operators._numerics import gated, sigmoid

FAST = 1.702
BETA = Attribute("beta", Kind.SCALAR, "factor in the exponent; null: 1", c_name="betaOptional")
GRADIENT = Output("grad_input", "gradient with respect to self", "self", "self")


@operator(
    "aclnnSwish",
    floats.SELF,
    BETA,
    floats.OUT,
    **floats.ALL,
    checks=(
        rules.present("self", "out"),
        rules.supported("self", "out"),
        rules.same_dtype("out", as_="self"),
        rules.real("beta"),
        rules.rank_at_most(8, "self", "out"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self", "out"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"beta": 1.5}),
    source="ops-nn activation/swish: order of checks of aclnnSwish; equal dtypes are assumed",
    area="activations",
)
def swish(facts: Facts, self: Array, beta: float | None = None) -> AnyArray:
    """``self * sigmoid(beta * self)``.

    With ``x = self``, and a ``beta`` of 1 if none is given::

        out = x / (1 + e^(-beta * x))

    Computed in float32 and rounded once. ``beta`` is converted to float32. With a beta of 1 it is
    ``aclnnSilu``.

    As the expression in torch.
    """
    x = np.asarray(self)
    return gated(x, x if beta is None else x * x.dtype.type(beta), facts.out)


@operator(
    "aclnnFastGelu",
    floats.SELF,
    floats.OUT,
    **floats.NEWER,
    checks=(
        rules.present("self", "out"),
        rules.same_dtype("out", as_="self"),
        rules.supported("self"),
        rules.same_shape("self", "out"),
        rules.rank_at_most(8, "self"),
        rules.same_format("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    source="ops-nn activation/fast_gelu: page aclnnFastGelu, order of its checks",
    area="activations",
)
def fast_gelu(facts: Facts, self: Array) -> AnyArray:
    """``self * sigmoid(1.702 * self)``, near to GELU.

    With ``x = self``::

        out = x / (1 + e^(-1.702 * x))

    Computed in float32 and rounded once. -inf gives NaN.

    As the expression in torch.
    """
    x = np.asarray(self)
    return gated(x, x * x.dtype.type(FAST), facts.out)


def slope(x: Array, beta: float) -> AnyArray:
    """Of ``x * sigmoid(beta * x)``, in float64, since it passes through 0."""
    scaled = np.asarray(x, np.float64) * beta
    opened, closed = sigmoid(scaled), sigmoid(-scaled)
    return opened * (1 + scaled * closed)


@operator(
    "aclnnSwishBackward",
    floats.UPSTREAM,
    floats.GONE_IN,
    BETA,
    GRADIENT,
    **floats.ALL,
    checks=(
        rules.present(*floats.BOTH, "grad_input"),
        rules.supported(*floats.BOTH),
        rules.real("beta"),
        rules.same_dtype(*floats.BOTH, as_="grad_input"),
        rules.same_dtype("self", as_="grad_output"),  # for a call that leaves grad_input out
        rules.rank_at_most(8, *floats.BOTH, "grad_input"),
        rules.same_shape("grad_output", "self"),
        rules.same_shape("self", "grad_input"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"beta": 1.5}),
    source="ops-nn page aclnnSwishBackward, order of its checks",
    area="activations",
)
def swish_backward(
    facts: Facts, grad_output: Array, self: Array, beta: float | None = None
) -> AnyArray:
    """Gradient of ``swish(self, beta)`` with respect to ``self``.

    With ``a = beta * self``, ``beta`` 1 if none is given, and ``s = sigmoid(a)``::

        grad_input = grad_output * s * (1 + a * (1 - s))

    The slope is computed in float64. NaN where ``self`` is infinite. All tensors have one shape and
    one dtype.

    As the gradient of the expression in torch.
    """
    return (grad_output * slope(self, 1 if beta is None else beta)).astype(facts.dtype)


@operator(
    "aclnnFastGeluBackward",
    floats.UPSTREAM,
    floats.GONE_IN,
    GRADIENT,
    **floats.NEWER,
    checks=(
        rules.present(*floats.BOTH, "grad_input"),
        rules.same_dtype("self", as_="grad_output"),
        rules.same_dtype("grad_input", as_="self"),
        rules.supported("self"),
        rules.same_shape("grad_output", "self"),
        rules.same_shape("grad_input", "self"),
        rules.rank_at_most(8, "self"),
        rules.same_format("grad_output", "self"),
        rules.same_format("grad_input", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    source="ops-nn page aclnnFastGeluBackward, order of its checks",
    area="activations",
)
def fast_gelu_backward(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``fast_gelu(self)`` with respect to ``self``.

    With ``a = 1.702 * self`` and ``s = sigmoid(a)``::

        grad_input = grad_output * s * (1 + a * (1 - s))

    The slope is computed in float64. NaN where ``self`` is infinite. All tensors have one shape,
    dtype and format.

    As the gradient of the expression in torch.
    """
    return (grad_output * slope(self, FAST)).astype(facts.dtype)
