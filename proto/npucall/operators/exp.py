"""Exponential of a tensor."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import (
    BOOL,
    COMPLEX64,
    COMPLEX128,
    DOUBLE,
    FLOATS,
    HALF_AND_SINGLE,
    INT64,
    AnyArray,
    Array,
)
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910

BESIDES = (DOUBLE, COMPLEX64, COMPLEX128, BOOL, INT64)
WITH_BF16, WITHOUT_BF16 = (*FLOATS, *BESIDES), (*HALF_AND_SINGLE, *BESIDES)


@operator(
    "aclnnExp",
    Input("self", "the exponents"),
    Output("out", "e to the power of self", shape="self", dtype="result"),
    products=shared.on(newer=WITH_BF16),
    legacy=shared.before(ASCEND_910, ASCEND_310P, ASCEND_310B, dtypes=WITHOUT_BF16),
    checks=(
        rules.present("self", "out"),
        rules.supported("self"),
        rules.float_of("self", into="result"),
        rules.castable("result", to="out"),
        rules.same_shape("out", "self"),
        rules.rank_at_most(8, "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("result"),
    over=elementwise("self"),
    area="arithmetic",
    torch="exp",
    source="ops-math page aclnnExp&aclnnInplaceExp",
)
def exp(facts: Facts, self: Array) -> AnyArray:
    """Exponential of ``self``.

    ::

        out = e^self

    FLOAT16 and BF16 are computed in float32 and rounded once. INT64 and BOOL, the only integers
    that Exp takes, are converted to FLOAT. ``out`` may have any dtype that the result can be cast
    to.

    As in torch, except that torch takes every integer dtype.
    """
    return np.exp(self, out=facts.out)


inplace_exp = in_place(exp)
