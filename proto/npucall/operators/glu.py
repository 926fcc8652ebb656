"""The gated linear unit."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, AnyArray, Array
from npucall.operators._glu import halved
from npucall.operators._numerics import gated
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_BF16, WITHOUT_BF16 = (*FLOATS, DOUBLE), (FLOAT, FLOAT16, DOUBLE)


@operator(
    "aclnnGlu",
    Input("self", "along dim first values, then gates"),
    Attribute("dim", Kind.INT64, "the dimension that is halved"),
    Output("out", "gated values", shape="half", dtype="self", const=True),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT_BF16,
        ASCEND_310P: WITHOUT_BF16,
    },
    legacy={ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", "out"),
        rules.supported("self", "out"),
        rules.castable("self", to="out"),
        rules.rank_at_most(8, "self", "out"),
        *halved(),
        rules.same_shape("out", "half", "that of self with half its extent along dim"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=rows("dim", halves=("self",)),
    sample=Sample({"self": (2, 6)}),
    area="activations",
    torch="nn.functional.glu",
    source="ops-nn page aclnnGlu",
)
def glu(facts: Facts, self: Array, dim: int = -1) -> AnyArray:
    """Values times gates between 0 and 1.

    With a and b the first and second half of ``self`` along ``dim``::

        out = a * sigmoid(b)

    Computed in float32, DOUBLE in double, and rounded once to the dtype of ``self``; then converted
    to that of ``out``. ``dim`` counts from the end if it is negative; rank 0 is refused. An
    infinite value times a closed gate (-inf) gives NaN.

    As in torch. Atlas A2 and A3 round the sigmoid of FLOAT16 to FLOAT16 first.
    """
    values, gates = np.asarray(self)  # a first axis of both halves
    return gated(values, gates)
