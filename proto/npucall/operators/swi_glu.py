"""Gated linear unit with SiLU."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators._glu import halved
from npucall.operators._numerics import gated
from npucall.products import A2, A3, ASCEND_310P, ASCEND_950


@operator(
    "aclnnSwiGlu",
    Input("x", "along dim first what is activated, then what it is multiplied by"),
    Attribute("dim", Kind.INT64, "the dimension that is halved"),
    Output("out", "the product", shape="half", dtype="x", const=True),
    products={**dict.fromkeys((A2, A3, ASCEND_950), FLOATS), ASCEND_310P: HALF_AND_SINGLE},
    checks=(
        rules.present("x", "out"),
        rules.supported("x"),
        rules.same_dtype("out", as_="x"),
        *rules.with_status(
            TILING_ERROR,
            *halved("x"),
            rules.same_shape("out", "half", "that of x with half its extent along dim"),
        ),
        rules.succeed_if_empty("x"),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=rows("dim", halves=("x",)),
    sample=Sample({"x": (2, 6)}),
    area="activations",
    source="ops-nn activation/swi_glu: page aclnnSwiGlu, its definition and tiling",
)
def swi_glu(facts: Facts, x: Array, dim: int = -1) -> AnyArray:
    """``silu(a) * b`` of the halves of ``x`` along ``dim``.

    With a the first and b the second half::

        out = a * sigmoid(a) * b

    All is computed in float32, and rounded once. ``dim`` counts from the end if it is negative. An
    odd extent, and a tensor without dimensions, are refused (561002).

    As ``silu(a) * b`` in torch.
    """
    first, second = np.asarray(x)  # a first axis of both halves
    return np.multiply(gated(first, first), second, out=facts.out)
