"""Gradient of the exponential linear unit with respect to its input."""

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
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import AttributeValueError
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950


@operator(
    "aclnnEluBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Attribute("alpha", Kind.SCALAR, "the forward operator's factor of its negative part"),
    Attribute("scale", Kind.SCALAR, "the forward operator's factor of the whole"),
    Attribute("input_scale", Kind.SCALAR, "the forward operator's factor in the exponent"),
    Attribute("is_result", Kind.BOOL, "self_or_result is the forward result; alpha is 0 or more"),
    Input("self_or_result", "what went into the forward operator, or came out if is_result"),
    Output(
        "grad_input",
        "gradient with respect to the forward input",
        shape="grad_output",
        dtype="grad_output",
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
        rules.present(
            "grad_output", "alpha", "scale", "input_scale", "self_or_result", "grad_input"
        ),
        rules.same_dtype("grad_output", as_="self_or_result"),
        rules.supported("grad_output"),
        rules.real("alpha", "scale", "input_scale"),
        rules.castable("grad_output", to="grad_input"),
        rules.same_shape("self_or_result", "grad_output"),
        rules.same_shape("grad_input", "grad_output"),
        rules.rank_at_most(8, "grad_output"),
        rules.requires(
            "0 or more if is_result",
            "alpha",
            "is_result",
            holds=lambda draft: not (draft.attribute("is_result") and draft.attribute("alpha") < 0),
            found=lambda draft: draft.attribute("alpha"),
            error=AttributeValueError,
        ),
        rules.succeed_if_empty("grad_output"),
    ),
    kernel_dtype=rules.dtype_of("grad_output"),
    over=elementwise("grad_output"),
    sample=Sample(
        attributes={"alpha": 1.5, "scale": 1.25, "input_scale": 0.5, "is_result": False},
        least=-0.9,
    ),
    area="activations",
    torch="nn.functional.elu",
    source="ops-nn page aclnnEluBackward",
)
def elu_backward(
    facts: Facts,
    grad_output: Array,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    self_or_result: Array,
) -> AnyArray:
    """Gradient of ``scale * elu(x, alpha)`` with respect to ``x``.

    With ``g = grad_output`` and ``x = self_or_result``::

        grad_input = g * scale                                                 where x > 0
        grad_input = g * input_scale * alpha * scale * e^(x * input_scale)     elsewhere
        grad_input = g * input_scale * (x + alpha * scale)     elsewhere if is_result

    At 0 the gradient is that of the negative part; where ``x`` is NaN it is ``g * scale``. The
    three numbers are converted to float32. All tensors have one shape, both inputs one dtype, in
    which the operator computes; ``grad_input`` may have any dtype that it can be cast to.

    As in torch, with the same order of arguments, except for NaN: torch gives the one or the other.
    """
    if is_result:
        negative = grad_output * input_scale * (self_or_result + alpha * scale)
    else:
        decay = np.exp(self_or_result * input_scale)
        negative = grad_output * input_scale * (alpha * scale) * decay
    return np.where(self_or_result <= 0, negative, grad_output * scale)
