"""Mean absolute error."""

import numpy as np

from npucall.declare import (
    Facts,
    Input,
    Output,
    Sample,
    elementwise,
    operator,
    rules,
)
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, INT64, AnyArray, Array
from npucall.errors import DTypeError
from npucall.operators import _losses as shared
from npucall.operators._numerics import MEAN, NONE, REDUCTION, Reduction
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("self", "target")
WITH_BF16, WITHOUT_BF16 = (*FLOATS, INT64), (*HALF_AND_SINGLE, INT64)


def is_float(draft: Draft, name: str) -> bool:
    """Whether a tensor has a floating dtype."""
    return draft.dtype(name).kind == "float"


@operator(
    "aclnnL1Loss",
    Input("self", "predictions"),
    Input("target", "labels"),
    REDUCTION,
    Output("out", "the loss", shape="result", dtype="promotion"),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT_BF16,
        ASCEND_310P: WITHOUT_BF16,
    },
    legacy={ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present(*INPUTS, "out"),
        rules.one_of("reduction", 0, 1, 2),
        rules.when(
            shared.is_whole,
            rules.requires(
                "a floating dtype, since target has one",
                "self",
                holds=lambda draft: is_float(draft, "self") or not is_float(draft, "target"),
                found=lambda draft: draft.dtype("self"),
                error=DTypeError,
            ),
            "if reduction is 0",
        ),
        rules.when(
            lambda draft: bool(draft.attribute("reduction") == MEAN),
            rules.requires(
                "a floating dtype of one of them for a mean",
                *INPUTS,
                holds=lambda draft: any(is_float(draft, name) for name in INPUTS),
                found=lambda draft: " and ".join(str(draft.dtype(name)) for name in INPUTS),
                error=DTypeError,
            ),
            "if reduction is 1",
        ),
        rules.promoted(*INPUTS, into="promotion"),
        rules.supported("promotion", blames=INPUTS),
        rules.castable("promotion", to="out"),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        *shared.reduced("common"),
        rules.same_shape("out", "result", "what the inputs broadcast to, or () if reduced"),
        shared.filled_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common", sum_to="kept", factor=shared.factor_of("common")),
    sample=Sample(attributes={"reduction": NONE}),
    area="losses",
    torch="nn.functional.l1_loss",
    source="ops-nn page aclnnL1Loss",
)
def l1_loss(facts: Facts, self: Array, target: Array, reduction: Reduction = 1) -> AnyArray:
    """Mean absolute error of ``self`` against ``target``.

    ::

        abs(self - target)

    for each element of the shape that both broadcast to; their sum, or their mean, which is the sum
    times 1 / element count of that shape. Inputs are converted to their promoted dtype. Nothing is
    rounded before the sum, which is rounded once to the promoted dtype, then to that of ``out``: a
    sum beyond 65504 of FLOAT16 inputs is infinite in any ``out``. INT64 is computed in integers;
    the mean of integers is refused. Without elements the mean is NaN and the sum is 0.

    As in torch, except that torch takes integers in fewer cases. The software checks only the
    promoted dtype: INT32 with INT64 or a float passes, INT32 with INT32 does not. Rank 0 passes
    too, although the page says 1 to 8 dimensions.
    """
    del reduction
    distance = np.asarray(np.subtract(self, target, out=facts.out))
    return np.abs(distance, out=distance)
