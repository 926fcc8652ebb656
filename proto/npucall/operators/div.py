"""Quotient of two tensors."""

import numpy as np

from npucall.declare import Facts, Output, Sample, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import AnyArray, Array
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910


@operator(
    "aclnnDiv",
    shared.FIRST,
    shared.SECOND,
    Output("out", "self / other", shape="common", dtype="quotient"),
    products=shared.on(ASCEND_910, ASCEND_310B),
    legacy=shared.before(ASCEND_310P),
    checks=(
        rules.present("out", "other", "self"),
        *shared.BROADCAST,
        rules.supported("other", "self"),
        rules.promoted(*shared.PAIR, into="promotion"),
        rules.float_of("promotion", into="quotient"),
        rules.castable("quotient", to="out"),
        rules.public_format(*shared.PAIR, "out"),
        rules.succeed_if_empty(*shared.PAIR),
    ),
    kernel_dtype=rules.dtype_of("quotient"),
    over=elementwise("common"),
    sample=Sample(integers=range(1, 9)),
    area="arithmetic",
    torch="div",
    source="ops-math page aclnnDiv&aclnnInplaceDiv [src:in-place]",
)
def div(facts: Facts, self: Array, other: Array) -> AnyArray:
    """Quotient of ``self`` and ``other``.

    ::

        out = self / other

    Both are converted to their promoted dtype, integers and BOOL from there to FLOAT: the quotient
    has a fraction, and ``out`` is refused if it has an integer dtype. FLOAT16 and BF16 are computed
    in float32 and rounded once. ``x / 0`` is infinite, ``0 / 0`` is NaN.

    Shapes are checked before dtypes. As in torch, except that torch promotes a tensor of rank 0
    differently.
    """
    return np.divide(self, other, out=facts.out)


inplace_div = in_place(div)
