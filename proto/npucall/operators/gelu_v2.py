"""The Gaussian error linear unit, of either form."""

from typing import Literal

from npucall.declare import (
    Facts,
    Input,
    Output,
    choice,
    elementwise,
    operator,
    rules,
)
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._gelu import erf_form, tanh_form
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

TANH = 1


@operator(
    "aclnnGeluV2",
    Input("x", "any numbers"),
    choice("approximate", "none", "tanh", other="any other acts as none, the form with erf"),
    Output("y", "result", shape="x", dtype="x"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("x", "y"),
        rules.same_dtype("y", as_="x"),
        rules.bfloat16_if_product_has("x"),
        rules.supported("x"),
        rules.same_shape("y", "x"),
        rules.warn_unless("approximate", 0, TANH, meaning="it acts as 0"),
        rules.succeed_if_empty("x"),
    ),
    kernel_dtype=rules.dtype_of("x"),
    over=elementwise("x"),
    area="activations",
    torch="nn.functional.gelu",
    source="ops-nn page aclnnGeluV2",
)
def gelu_v2(facts: Facts, x: Array, approximate: int | Literal["none", "tanh"] = 0) -> AnyArray:
    """``gelu(x)``: ``x`` times the normal distribution function, or an approximation of it.

    ``approximate`` is 1 for the second form, with ``u = sqrt(2 / pi) * (x + 0.044715 x^3)``::

        else:  y = x / 2 * (1 + erf(x / sqrt(2)))
        1:     y = x / 2 * (1 + tanh u)

    The page allows only 0 and 1; the software checks nothing. aclnnGeluBackwardV2 takes words
    instead. ``y`` has the shape and dtype of ``x``, of any rank. +inf stays, and -inf gives NaN, as
    in torch.

    As in torch.
    """
    if approximate == TANH:
        return tanh_form(x, facts.out)
    return erf_form(x).astype(facts.dtype)
