"""Softmax: powers of e that sum to 1 along a dimension."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, AnyArray, Array
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_BF16, WITHOUT_BF16 = (*FLOATS, DOUBLE), (FLOAT, FLOAT16, DOUBLE)


def powers(facts: Facts, self: Array) -> AnyArray:
    """What is summed along a row: powers of e of how far each element is below the largest."""
    below = np.subtract(self, facts.row_max(np.asarray(self)))
    return np.exp(below, out=below)


@operator(
    "aclnnSoftmax",
    Input("self", "logits"),
    Attribute("dim", Kind.INT64, "the dimension along which results sum to 1"),
    Output("out", "probabilities", shape="self", dtype="self"),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT_BF16,
        ASCEND_310P: WITHOUT_BF16,
        ASCEND_310B: WITHOUT_BF16,
    },
    checks=(
        rules.present("self", "out"),
        rules.succeed_if_empty("self"),
        rules.supported("self", "out"),
        rules.dim_of("self"),
        rules.rank_at_most(8, "self"),
        rules.same_shape("self", "out"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=rows("dim", max_of="self", sum_of=powers),
    sample=Sample(attributes={"dim": 1}),
    area="activations",
    torch="nn.functional.softmax",
    source="ops-nn page aclnnSoftmax",
)
def softmax(facts: Facts, self: Array, dim: int) -> AnyArray:
    """Softmax of ``self`` along ``dim``.

    With the maximum and the sum along ``dim``::

        out = e^(self - max(self)) / sum(e^(self - max(self)))

    ``self`` and ``out`` have one shape; rank 0 counts as rank 1, and gives 1. Computed in float32,
    DOUBLE in double, and rounded to the dtype of ``self``; then converted to that of ``out``, so
    that a FLOAT ``out`` of a FLOAT16 ``self`` has FLOAT16's numbers. ``dim`` counts from the end if
    it is negative. A row with NaN or +inf, or with nothing but -inf, gives NaN; -inf among other
    numbers gives 0.

    As in torch. If ``self`` is empty, nothing else is checked: dtypes, ``dim`` and the shape of
    ``out`` are free.
    """
    power = powers(facts, self)
    power /= facts.row_sum(power)
    return power
