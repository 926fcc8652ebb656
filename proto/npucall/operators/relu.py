"""The rectified linear unit."""

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.declare.twins import in_place
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, INT8, INT32, INT64, UINT8, AnyArray, Array
from npucall.operators._numerics import chosen
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INTEGERS = (INT8, INT32, INT64, UINT8)


@operator(
    "aclnnRelu",
    Input("self", "any numbers"),
    Output("out", "the numbers, or 0", shape="self", dtype="self", const=True),
    products={
        **dict.fromkeys((A2, A3, ASCEND_950), (*FLOATS, *INTEGERS)),
        ASCEND_910: (*HALF_AND_SINGLE, *INTEGERS),
    },
    legacy=dict.fromkeys((ASCEND_310P, ASCEND_310B), (*HALF_AND_SINGLE, *INTEGERS)),
    checks=(
        rules.present("self", "out"),
        rules.supported("self", "out"),
        rules.same_dtype("self", as_="out"),
        rules.same_shape("self", "out"),
        rules.rank_at_most(8, "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    area="activations",
    torch="nn.functional.relu",
    source="ops-nn activation/relu: page aclnnRelu&aclnnInplaceRelu, order of checks in its source",
)
def relu(facts: Facts, self: Array) -> AnyArray:
    """``self`` where it is more than 0, and 0 elsewhere.

    ::

        out = 0       where self <= 0
        out = self    elsewhere, also where self is NaN

    Nothing is rounded. Its gradient is that of a threshold of 0, ``aclnnThresholdBackward``. For
    INT32 and INT64 a device may compute in FLOAT; the reference is exact.

    As in torch.
    """
    x = np.asarray(self)
    return chosen(np.less_equal(x, 0), x.dtype.type(0), x, out=facts.out)


inplace_relu = in_place(relu)
