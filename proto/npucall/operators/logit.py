"""Logit, the inverse of the sigmoid."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.products import A2, A3, ASCEND_950


@operator(
    "aclnnLogit",
    Input("input", "probabilities"),
    Attribute("eps", Kind.DOUBLE, "margin to which the input is clamped; below 0: none"),
    Output("out", "the logits", shape="input", dtype="input", const=True),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS},
    checks=(
        rules.present("input", "out"),
        rules.supported("input"),
        rules.same_dtype("out", as_="input"),
        *rules.with_status(TILING_ERROR, rules.same_shape("out", "input")),
    ),
    kernel_dtype=rules.dtype_of("input"),
    over=elementwise("input"),
    area="activations",
    torch="logit",
    source="header aclnn_logit.h, CANN 8.1",
)
def logit(facts: Facts, input: Array, eps: float = -1.0) -> AnyArray:  # noqa: A002  # its name in C
    """Logit of ``input``, clamped to the range from ``eps`` to ``1 - eps``.

    ::

        out = ln(x / (1 - x))

    where ``x`` is ``input`` if ``eps`` is below 0 or NaN; otherwise ``eps`` where ``input`` is less
    than that, then ``1 - eps`` where it is more than that, else ``input``. ``eps`` is converted to
    float32, and ``1 - eps`` is computed in float32. Without a margin -inf at 0, inf at 1, NaN
    outside and for NaN. With ``eps`` 1 the result is inf below 1 and -inf from 1 on; the
    page says inf. With a larger one it is NaN. Both tensors have one shape and one dtype.

    As ``aten.logit`` in torch, which writes None for an ``eps`` below 0.
    """
    x = np.asarray(input)
    margin = facts.dtype.type(np.float32(eps))
    if margin >= 0:
        high = facts.dtype.type(1) - margin
        x = np.where(x < margin, margin, np.where(x > high, high, x))
    return np.log(x / np.subtract(1, x), out=facts.out)
