"""Gradient of the gated linear unit with SiLU."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators._glu import halved
from npucall.operators._norms import no_zero
from npucall.operators._numerics import gated, sigmoid
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950


@operator(
    "aclnnSwiGluGrad",
    Input("y_grad", "gradient of the product"),
    Input("x", "along dim first what is activated, then what it is multiplied by"),
    Attribute("dim", Kind.INT64, "the dimension that is halved"),
    Output("out", "gradient of x", shape="x", dtype="x", const=True),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present("y_grad", "x", "out"),
        rules.supported("y_grad"),
        rules.same_dtype("x", "out", as_="y_grad"),
        *rules.with_status(
            TILING_ERROR,
            *halved("x"),
            rules.same_shape("y_grad", "half", "that of x with half its extent along dim"),
            rules.same_shape("out", "x"),
            *no_zero("x"),
        ),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=rows("dim", halves=("x", "out")),
    sample=Sample({"x": (2, 6)}),
    area="activations",
    source="ops-nn activation/swi_glu_grad: page aclnnSwiGluGrad, its definition and tiling",
)
def swi_glu_grad(facts: Facts, y_grad: Array, x: Array, dim: int = -1) -> AnyArray:
    """Gradient of ``swi_glu(x, dim)``, which is ``silu(a) * b``, with respect to ``x``.

    With a and b the first and second half of ``x`` along ``dim`` and s = sigmoid(a)::

        out, first half  = y_grad * b * s * (1 + a * (1 - s))
        out, second half = y_grad * a * s

    All is computed in float32, and rounded once. Everywhere the checks are those of Ascend 950;
    other products look at ``x`` alone. An odd extent, and tensors without elements, are refused
    (561002).

    As the gradient of ``silu(a) * b`` in torch.
    """
    first, second = np.asarray(x)  # a first axis of both halves
    opened, closed = sigmoid(first), sigmoid(-first)
    slope = opened * (1 + first * closed)
    return np.stack([y_grad * second * slope, y_grad * gated(first, first)])
