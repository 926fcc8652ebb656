"""Product of two tensors."""

import numpy as np

from npucall.declare import Facts, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import AnyArray, Array
from npucall.operators import _arithmetic as shared
from npucall.products import ASCEND_310B, ASCEND_310P, ASCEND_910


@operator(
    "aclnnMul",
    shared.FIRST,
    shared.SECOND,
    shared.result("self * other"),
    products=shared.on(ASCEND_910, ASCEND_310P),
    legacy=shared.before(ASCEND_310B),
    checks=(
        rules.present(*shared.PAIR, "out"),
        rules.supported(*shared.PAIR, "out"),
        rules.promoted(*shared.PAIR, into="promotion"),
        rules.castable("promotion", to="out"),
        *shared.BROADCAST,
        rules.succeed_if_empty(*shared.PAIR),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    area="arithmetic",
    torch="mul",
    source="ops-math page aclnnMul&aclnnInplaceMul [src:in-place]",
)
def mul(facts: Facts, self: Array, other: Array) -> AnyArray:
    """Product of ``self`` and ``other``.

    ::

        out = self * other

    Both are converted to their promoted dtype. FLOAT16 and BF16 are computed in float32 and rounded
    once. Integers wrap around; for BOOL the product is "and". ``out`` may have any dtype that the
    promoted one can be cast to, which Ascend 950 itself does not check.

    As in torch, except that torch promotes a tensor of rank 0 differently.
    """
    return np.multiply(self, other, out=facts.out)


inplace_mul = in_place(mul)
