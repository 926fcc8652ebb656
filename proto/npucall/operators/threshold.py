"""A threshold: numbers that are not beyond it become another one."""

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
from npucall.declare.twins import in_place
from npucall.dtypes import (
    FLOATS,
    HALF_AND_SINGLE,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    AnyArray,
    Array,
)
from npucall.operators._numerics import chosen
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INTEGERS = (INT8, INT16, INT32, INT64, UINT8)
WITH_BF16, WITHOUT_BF16 = (*FLOATS, *INTEGERS), (*HALF_AND_SINGLE, *INTEGERS)


@operator(
    "aclnnThreshold",
    Input("self", "any numbers"),
    Attribute("threshold", Kind.SCALAR, "up to here numbers are replaced", dtype="self"),
    Attribute("value", Kind.SCALAR, "what replaces them", dtype="self"),
    Output("out", "the numbers, or value", shape="self", dtype="self"),
    products={A2: WITH_BF16, A3: WITH_BF16, ASCEND_950: WITH_BF16, ASCEND_910: WITHOUT_BF16},
    legacy={ASCEND_310P: WITHOUT_BF16, ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", "out", "threshold", "value"),
        rules.supported("self"),
        rules.castable("self", to="out"),  # on Ascend 950 it is the service's
        rules.rank_at_most(8, "self"),
        rules.same_shape("self", "out"),
        rules.real("threshold", "value"),  # the service's; what the operator makes of one: unknown
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes={"threshold": 0.25, "value": 7}),
    area="activations",
    torch="nn.functional.threshold",
    source="ops-nn page aclnnThreshold",
)
def threshold(facts: Facts, self: Array, threshold: float, value: float) -> AnyArray:
    """``self`` where it is beyond a threshold, another number elsewhere.

    ::

        out = value    where self <= threshold
        out = self     elsewhere, also where self is NaN

    Both numbers are converted to the dtype of ``self`` first, for integers without their fraction;
    the page of the operator promotes the dtypes instead. A number that does not fit into the
    integer dtype is converted as C does it. Results are rounded only to the dtype of ``out``, which
    may be any that ``self`` can be cast to. For INT32 a device computes in FLOAT, exact to 2^24;
    the reference is exact.

    As in torch.
    """
    x = np.asarray(self)
    return chosen(np.less_equal(x, threshold), facts.dtype.type(value), x, out=facts.out)


inplace_threshold = in_place(threshold)
