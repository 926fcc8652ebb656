"""The Gaussian error linear unit, its tanh form."""

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._gelu import tanh_form
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950


@operator(
    "aclnnGelu",
    Input("self", "any numbers"),
    Output("out", "result", shape="self", dtype="self"),
    products={
        A2: FLOATS,
        A3: FLOATS,
        ASCEND_950: FLOATS,
        ASCEND_910: HALF_AND_SINGLE,
        ASCEND_310P: HALF_AND_SINGLE,
    },
    legacy={ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present("self", "out"),
        rules.bfloat16_if_product_has("self"),
        rules.supported("self"),
        rules.same_dtype("out", as_="self"),
        rules.public_format("self", "out"),
        rules.rank_at_most(8, "self"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self", "out"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    area="activations",
    torch="nn.functional.gelu",
    source="ops-nn page aclnnGelu",
)
def gelu(facts: Facts, self: Array) -> AnyArray:
    """``gelu(self, approximate="tanh")``.

    With ``x = self`` and ``u = sqrt(2 / pi) * (x + 0.044715 x^3)``::

        out = x / 2 * (1 + tanh u) = x / (1 + e^-2u)

    The page of the operator names the form with the normal distribution, and prints this one, which
    the kernels compute; aclnnGeluV2 has both. ``out`` has the shape and dtype of ``self``. +inf
    stays, and -inf gives NaN, as in torch.

    Differs from torch: the default there is the form with erf.
    """
    return tanh_form(self, facts.out)
