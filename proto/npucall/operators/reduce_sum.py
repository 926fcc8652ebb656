"""Sum of a tensor along dimensions."""

from typing import Any

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
from npucall.dtypes import FLOAT, AnyArray, Array
from npucall.operators import _arithmetic as arithmetic
from npucall.operators import _reductions as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910


@operator(
    "aclnnReduceSum",
    Input("self", "what is summed"),
    Attribute("dims", Kind.INT_ARRAY, "dimensions to sum over; none: all of them"),
    Attribute("keep_dims", Kind.BOOL, "out keeps them with extent 1"),
    Attribute("dtype", Kind.DTYPE, "what self is converted to; that of out"),
    Output("out", "the sums", shape="result", dtype="asked"),
    products=arithmetic.on(ASCEND_910, ASCEND_310P),
    legacy=arithmetic.before(ASCEND_310B),
    checks=(
        rules.present("self", "dims", "out"),
        arithmetic.ASKED,
        rules.supported("self"),
        rules.supported("out"),
        rules.supported("asked", blames=("dtype",)),
        rules.same_dtype("out", as_="asked"),
        rules.rank_at_most(8, "self"),
        shared.dims_of("dims"),
        *shared.reduced("dims", "keep_dims"),
        shared.real_if_empty(),
        shared.filled(0.0, "0"),
        rules.requires(
            "self's shape without the dimensions, or one element for one element",
            "out",
            holds=shared.one_element_or("result"),
            found=lambda draft: f"{draft.shape('out')} for {draft.shape('result')}",
        ),
    ),
    kernel_dtype=rules.dtype_of("asked"),
    over=elementwise("self", sum_to="kept", factor=lambda *_: 1),
    sample=Sample(attributes={"dims": (0,), "keep_dims": False}, follows="dtype"),
    area="arithmetic",
    torch="sum",
    source="ops-math page aclnnReduceSum",
)
def reduce_sum(
    facts: Facts, self: Array, dims: Any = (), keep_dims: bool = False, dtype: Any = FLOAT
) -> AnyArray:
    """Sum of ``self`` over the dimensions ``dims``, or over all if there are none.

    ``self`` is converted to ``dtype`` first, which is FLOAT unless it is given. Sums of floats are
    rounded once, FLOAT16 and BF16 as well; integers wrap around; the sum of BOOL says whether any
    element is true. ``out`` has the dtype ``dtype`` and the shape of ``self`` without ``dims``, or
    with extent 1 there if ``keep_dims``; if it has one element, it may have any shape. Without
    elements the sum is 0, and a complex ``out`` is refused.

    As ``sum`` in torch, except that torch sums integers in INT64. Devices add up in another order.
    """
    del facts, dims, keep_dims, dtype
    return np.asarray(self)
