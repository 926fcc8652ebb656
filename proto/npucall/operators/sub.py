"""Difference of two tensors, the second one scaled."""

import numpy as np

from npucall.declare import Attribute, Facts, Kind, Sample, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import AnyArray, Array
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910


@operator(
    "aclnnSub",
    shared.FIRST,
    shared.SECOND,
    Attribute("alpha", Kind.SCALAR, "factor of other", dtype="promotion"),
    shared.result("self - alpha * other"),
    products=shared.on(ASCEND_910, ASCEND_310B),
    legacy=shared.before(ASCEND_310P),
    checks=shared.SCALED_SUM,
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    sample=Sample(attributes={"alpha": 2}),
    area="arithmetic",
    torch="sub",
    source="ops-math page aclnnSub&aclnnInplaceSub [src:in-place]",
)
def sub(facts: Facts, self: Array, other: Array, alpha: float) -> AnyArray:
    """Difference of ``self`` and ``alpha * other``.

    ::

        out = self - alpha * other

    Both are converted to their promoted dtype, and so is ``alpha``: if that dtype is an integer or
    BOOL, ``alpha`` must be an integer or a truth value. FLOAT16 and BF16 are computed in float32
    and rounded once. Integers wrap around; for BOOL the result says whether the two differ. ``out``
    may have any dtype that the promoted one can be cast to.

    As in torch, except that torch refuses BOOL and promotes a tensor of rank 0 differently.
    """
    product = shared.scaled(other, alpha)
    if facts.dtype == np.bool_:
        return np.not_equal(self, product)
    return np.subtract(self, product, out=facts.out)


inplace_sub = in_place(sub)
