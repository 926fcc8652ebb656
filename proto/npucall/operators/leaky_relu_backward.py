"""Gradient of the leaky rectifier with respect to its input."""

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
from npucall.dtypes import (
    BOOL,
    DOUBLE,
    FLOAT,
    FLOAT16,
    FLOATS,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    Array,
)
from npucall.errors import AttributeValueError
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_BF16, WITHOUT_BF16 = (*FLOATS, DOUBLE), (FLOAT, FLOAT16, DOUBLE)


@operator(
    "aclnnLeakyReluBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator, or came out of it if self_is_result"),
    Attribute("negative_slope", Kind.SCALAR, "slope of the forward operator below 0"),
    Attribute("self_is_result", Kind.BOOL, "self is the forward result; the slope is 0 or more"),
    Output("out", "gradient with respect to the forward input", shape="common", dtype="promotion"),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT_BF16,
        ASCEND_310P: WITHOUT_BF16,
    },
    legacy={ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("grad_output", "self", "negative_slope", "out"),
        rules.supported("grad_output", "self"),
        rules.supported("negative_slope", besides=(INT8, INT16, INT32, INT64, UINT8, BOOL)),
        rules.rank_at_most(8, "grad_output", "self"),
        rules.broadcast("grad_output", "self", into="common"),
        rules.same_shape("out", "common", "what the inputs broadcast to"),
        rules.requires(
            "0 or more if self_is_result",
            "negative_slope",
            "self_is_result",
            holds=lambda draft: (
                not (draft.attribute("self_is_result") and draft.attribute("negative_slope") < 0)
            ),
            found=lambda draft: draft.attribute("negative_slope"),
            error=AttributeValueError,
        ),
        rules.promoted("grad_output", "self", into="promotion"),
        rules.castable("promotion", to="out"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    sample=Sample(attributes={"negative_slope": 0.25, "self_is_result": False}, least=-0.9),
    area="activations",
    torch="nn.functional.leaky_relu",
    source="ops-nn page aclnnLeakyReluBackward",
)
def leaky_relu_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    negative_slope: float,
    self_is_result: bool = False,
) -> AnyArray:
    """Gradient of ``leaky_relu(x, negative_slope)`` with respect to ``x``.

    ::

        out = grad_output                      where self > 0
        out = grad_output * negative_slope     elsewhere, 0 and NaN among them

    The slope is converted to float32. A slope of 0 or more keeps the sign, so that ``self`` may be
    ``x`` or the forward result; ``self_is_result`` only makes sure of that. ``out`` has the shape
    that both inputs broadcast to and, unless given, their promoted dtype, in which the operator
    computes.

    As in torch, except that torch refuses inputs of different dtypes.
    """
    return np.where(self > 0, grad_output, grad_output * negative_slope)
