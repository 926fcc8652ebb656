"""The logarithm of softmax along a dimension."""

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Sample, operator, rows, rules
from npucall.declare.draft import Draft
from npucall.dtypes import DOUBLE, FLOAT, FLOAT16, FLOATS, AnyArray, Array, DType
from npucall.operators.softmax import powers
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

WITH_BF16, WITHOUT_BF16 = (*FLOATS, DOUBLE), (FLOAT, FLOAT16, DOUBLE)


def dtype_of_out(draft: Draft) -> DType:
    """That of out, which is self's for a call that leaves it to the operator."""
    return draft.dtype("self" if draft.tensor("out") is None else "out")


@operator(
    "aclnnLogSoftmax",
    Input("self", "logits"),
    Attribute("dim", Kind.INT64, "the dimension along which probabilities sum to 1"),
    Output("out", "logarithms of probabilities", shape="self", dtype="self"),
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
        rules.dim_of("self"),
        rules.bfloat16_if_product_has("self"),
        rules.when(
            lambda draft: draft.tensor("out") is not None,
            rules.bfloat16_if_product_has("out"),
            "if the call gives it",
        ),
        rules.supported("self", "out"),
        rules.rank_at_most(8, "self", "out"),
        rules.same_shape("out", "self"),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=dtype_of_out,
    over=rows("dim", max_of="self", sum_of=powers),
    sample=Sample(attributes={"dim": 1}),
    area="activations",
    torch="nn.functional.log_softmax",
    source="ops-nn page aclnnLogSoftmax",
)
def log_softmax(facts: Facts, self: Array, dim: int) -> AnyArray:
    """Logarithm of the softmax of ``self`` along ``dim``.

    With the maximum and the sum along ``dim``::

        out = self - max(self) - ln(sum(e^(self - max(self))))

    ``self`` and ``out`` have one shape; rank 0 counts as rank 1, and gives 0. ``self`` is converted
    to the dtype of ``out`` first, and the result is rounded once to it; it computes in float32, or
    in double for DOUBLE. aclnnSoftmax converts the result instead. ``dim`` counts from the end if
    it is negative. A row with NaN or +inf, or with nothing but -inf, gives NaN; -inf among other
    numbers stays.

    As in torch.
    """
    below = np.subtract(self, facts.row_max(np.asarray(self)))
    below -= np.log(facts.row_sum(np.exp(below)))
    return below
