"""Gradient of hardtanh with respect to its input."""

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
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950


@operator(
    "aclnnHardtanhBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator"),
    Attribute("min", Kind.SCALAR, "lower end of the forward operator's range"),
    Attribute("max", Kind.SCALAR, "upper end of the forward operator's range"),
    Output("out", "gradient with respect to self", shape="self", dtype="self"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
        ASCEND_310B: HALF_AND_SINGLE,
    },
    checks=(
        rules.present("self", "grad_output", "out", "min", "max"),
        rules.supported("grad_output", "self", "out"),
        rules.same_dtype("grad_output", as_="self"),
        rules.rank_at_most(8, "grad_output", "self"),
        rules.same_shape("grad_output", "self"),
        rules.real("min", "max"),  # the service's; what the operator makes of one is not known
        rules.succeed_if_empty("grad_output", "self"),
        # These are the service's: after its own checks the operator fails without naming a
        # parameter.
        rules.same_dtype("out", as_="self"),
        rules.same_shape("out", "self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"min": 0.25, "max": 0.75}),
    area="activations",
    torch="nn.functional.hardtanh",
    source="ops-nn page aclnnHardtanhBackward",
)
def hardtanh_backward(
    facts: Facts,
    grad_output: Array,
    self: Array,
    min: float,  # noqa: A002  # its name in C
    max: float,  # noqa: A002
) -> AnyArray:
    """Gradient of ``hardtanh(self, min, max)``, which clamps ``self``.

    ::

        out = grad_output     where min < self < max, or self is NaN
        out = 0               elsewhere: at the ends, and everywhere if min > max

    ``min`` and ``max`` are converted to float32. All tensors have one shape and one dtype. The
    formula on the operator's page includes the ends; the device does not.

    As in torch, except for NaN: torch gives ``grad_output`` or 0, depending on its position in the
    array.
    """
    outside = np.logical_or(self <= min, self >= max)
    return np.where(outside, np.zeros_like(grad_output), grad_output)
