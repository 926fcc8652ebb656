"""The logarithm of the sigmoid, and its gradient."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators import _floats as floats
from npucall.operators._numerics import gated
from npucall.operators._numerics import log_sigmoid as logarithm


@operator(
    "aclnnLogSigmoid",
    floats.SELF,
    Output("out", "the logarithms", shape="self", dtype="self"),
    **floats.ALL,
    checks=(
        rules.present("self", "out"),
        rules.supported("self", "out"),
        rules.same_dtype("self", as_="out"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    source="ops-nn activation/logsigmoid: page aclnnLogSigmoid, order of its checks",
    area="activations",
    torch="nn.functional.logsigmoid",
)
def log_sigmoid(facts: Facts, self: Array) -> AnyArray:
    """``ln(sigmoid(self))``.

    With ``x = self``::

        out = min(x, 0) - ln(1 + e^-|x|)

    Computed in float32 and rounded once. Tensors have any number of dimensions.

    As in torch.
    """
    del facts
    return logarithm(np.asarray(self))


@operator(
    "aclnnLogSigmoidBackward",
    floats.UPSTREAM,
    floats.GONE_IN,
    Input("buffer", "not used", read=False),
    Output("grad_input", "gradient with respect to self", shape="self", dtype="self"),
    **floats.ALL,
    checks=(
        rules.present(*floats.BOTH, "buffer", "grad_input"),
        rules.supported(*floats.BOTH),
        rules.same_dtype(*floats.BOTH, as_="grad_input"),
        rules.same_dtype("self", as_="grad_output"),  # for a call that leaves grad_input out
        rules.same_shape("grad_output", "self"),
        rules.same_shape("self", "grad_input"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    source="ops-nn page aclnnLogSigmoidBackward, order of its checks",
    area="activations",
    torch="nn.functional.logsigmoid",
)
def log_sigmoid_backward(facts: Facts, grad_output: Array, self: Array, buffer: Array) -> AnyArray:
    """Gradient of ``log_sigmoid(self)`` with respect to ``self``.

    ::

        grad_input = grad_output / (1 + e^self)

    ``buffer`` must be given, and is not used: any shape and dtype. Tensors have any number of
    dimensions, all others one shape and one dtype.

    As in torch, which reads e^-|self| from its buffer.
    """
    del buffer
    return gated(np.asarray(grad_output), -np.asarray(self), facts.out)
