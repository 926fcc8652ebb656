"""Gradient of the gated linear unit with respect to its input."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, AnyArray, Array
from npucall.operators._glu import halved
from npucall.operators._numerics import sigmoid
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_BF16, WITHOUT_BF16 = (*FLOATS, DOUBLE), (FLOAT, FLOAT16, DOUBLE)


@operator(
    "aclnnGluBackward",
    Input("grad_out", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator: along dim first values, then gates"),
    Attribute("dim", Kind.INT64, "the dimension that the forward operator halves"),
    Output("out", "gradient with respect to self", shape="self", dtype="self", const=True),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT_BF16,
        ASCEND_310P: WITHOUT_BF16,
    },
    legacy={ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", "grad_out", "out"),
        rules.supported("self"),
        rules.same_dtype("grad_out", "out", as_="self"),
        rules.rank_at_most(8, "self", "out", "grad_out"),
        *halved(),
        rules.same_shape("grad_out", "half", "that of self with half its extent along dim"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=rows("dim", halves=("self", "out")),
    sample=Sample({"self": (2, 6)}),
    area="activations",
    torch="nn.functional.glu",
    source="ops-nn page aclnnGluBackward",
)
def glu_backward(facts: Facts, grad_out: Array, self: Array, dim: int = -1) -> AnyArray:
    """Gradient of ``glu(self, dim)``, which is ``a * sigmoid(b)``, with respect to ``self``.

    With a and b the first and second half of ``self`` along ``dim`` and s = sigmoid(b)::

        out, first half  = grad_out * s
        out, second half = grad_out * s * (1 - s) * a

    All tensors have one dtype; FLOAT16 and BF16 are computed in float32 and rounded once. ``dim``
    counts from the end if it is negative; rank 0 is refused.

    As in torch. The order of the checks is that of ops-nn:
    null tensors, dtypes, ranks, then shapes.
    """
    values, gates = np.asarray(self)  # a first axis of both halves
    opened, closed = sigmoid(gates), sigmoid(-gates)
    return np.stack([grad_out * opened, opened * closed * values * grad_out])
