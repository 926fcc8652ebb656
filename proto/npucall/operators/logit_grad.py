"""Gradient of the logit with respect to its input."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.products import A2, A3, ASCEND_950


@operator(
    "aclnnLogitGrad",
    Input("x", "what went into the forward operator"),
    Input("dy", "gradient of the loss with respect to the forward result"),
    Attribute("eps", Kind.DOUBLE, "the forward operator's margin; below 0: none"),
    Output("out", "gradient with respect to x", shape="x", dtype="x", const=True),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS},
    checks=(
        rules.present("x", "dy", "out"),
        rules.supported("x"),
        rules.same_dtype("dy", "out", as_="x"),
        *rules.with_status(TILING_ERROR, rules.same_shape("dy", "x"), rules.same_shape("out", "x")),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=elementwise("x"),
    area="activations",
    torch="logit",
    source="header aclnn_logit_grad.h, CANN 8.1",
)
def logit_grad(facts: Facts, x: Array, dy: Array, eps: float = -1.0) -> AnyArray:
    """Gradient of ``logit(x, eps)``, which is ``ln(x / (1 - x))``, with respect to ``x``.

    ::

        out = dy / (x * (1 - x))    where eps <= x <= 1 - eps, or 0 <= x <= 1 if eps < 0
        out = 0                     elsewhere; NaN if eps < 0

    ``eps`` is converted to float32. Infinite where ``x`` is 0 or 1, if that is inside; NaN there if
    ``dy`` is 0. All tensors have one shape and one dtype.

    As ``aten.logit_backward`` in torch, which writes None for an ``eps`` below 0. If ``x`` is NaN
    and ``eps`` is 0 or more, the result is 0 here and NaN in torch.
    """
    margin = facts.dtype.type(np.float32(eps))
    low, outside = (margin, 0) if margin >= 0 else (facts.dtype.type(0), np.nan)
    inside = (x >= low) & (x <= facts.dtype.type(1) - low)
    return np.where(inside, dy / (x * np.subtract(1, x)), outside)
