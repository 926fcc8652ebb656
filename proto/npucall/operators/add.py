"""Sum of two tensors, the second one scaled."""

import numpy as np

from npucall.declare import Attribute, Facts, Kind, Sample, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import AnyArray, Array
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910


@operator(
    "aclnnAdd",
    shared.FIRST,
    shared.SECOND,
    Attribute("alpha", Kind.SCALAR, "factor of other", dtype="promotion"),
    shared.result("self + alpha * other"),
    products=shared.on(ASCEND_910),
    legacy=shared.before(ASCEND_310P, ASCEND_310B),
    checks=shared.SCALED_SUM,
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    sample=Sample(attributes={"alpha": 2}),
    area="arithmetic",
    torch="add",
    source="ops-math page aclnnAdd&aclnnInplaceAdd [src:in-place]",
)
def add(facts: Facts, self: Array, other: Array, alpha: float) -> AnyArray:
    """Sum of ``self`` and ``alpha * other``.

    ::

        out = self + alpha * other

    Both are converted to their promoted dtype, and so is ``alpha``: if that dtype is an integer or
    BOOL, ``alpha`` must be an integer or a truth value. FLOAT16 and BF16 are computed in float32
    and rounded once. Integers wrap around; for BOOL the sum is "or". ``out`` may have any dtype
    that the promoted one can be cast to.

    As in torch, except that torch promotes a tensor of rank 0 differently. Atlas A2 and A3 round
    ``alpha * other`` to BF16 before they add it.
    """
    return np.add(self, shared.scaled(other, alpha), out=facts.out)


inplace_add = in_place(add, first=shared.BROADCAST, const=True)
