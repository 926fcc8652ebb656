"""Hardtanh, which clamps."""

from __future__ import annotations

from math import inf

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
from npucall.declare.draft import Draft
from npucall.declare.twins import in_place
from npucall.dtypes import (
    DOUBLE,
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
from npucall.errors import AttributeValueError, DTypeError
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

ENDS = ("clip_value_min", "clip_value_max")
OTHERS = (DOUBLE, INT8, INT16, INT32, INT64, UINT8)
WITH_BF16, WITHOUT_BF16 = (*FLOATS, *OTHERS), (*HALF_AND_SINGLE, *OTHERS)


def _same_dtype(draft: Draft) -> bool:
    out = draft.tensor("out")
    return out is None or out.dtype is draft.dtype("self")


def _in_order(draft: Draft) -> bool:
    """Whether the ends, as given, are in order; as integers if the lower one is; NaN passes."""
    low, high = (draft.scalar(name) for name in ENDS)
    if low is None or high is None:
        return True
    if low.dtype.kind == "int" and abs(high.value) < inf:
        return int(low.value) <= int(high.value)
    return not low.value > high.value


@operator(
    "aclnnHardtanh",
    Input("self", "any numbers"),
    Attribute("clip_value_min", Kind.SCALAR, "the lower end", dtype="self"),
    Attribute("clip_value_max", Kind.SCALAR, "the upper end", dtype="self"),
    Output("out", "the numbers, none outside the ends", shape="self", dtype="self"),
    products={
        A2: WITH_BF16,
        A3: WITH_BF16,
        ASCEND_950: WITH_BF16,
        ASCEND_910: WITHOUT_BF16,
        ASCEND_310P: WITHOUT_BF16,
    },
    legacy={ASCEND_310B: WITHOUT_BF16},
    checks=(
        rules.present("self", *ENDS, "out"),
        rules.supported("self"),
        rules.supported(*ENDS),
        rules.requires(
            "the dtype of out",
            "self",
            "out",
            holds=_same_dtype,
            found=lambda draft: f"{draft.dtype('self')} and {draft.dtype('out')}",
            error=DTypeError,
        ),
        rules.rank_at_most(8, "self"),
        rules.same_shape("self", "out"),
        rules.requires(
            "no more than clip_value_max",
            *ENDS,
            holds=_in_order,
            found=lambda draft: " and ".join(str(draft.argument(name)) for name in ENDS),
            error=AttributeValueError,
        ),
        rules.succeed_if_empty("self"),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("self"),
    sample=Sample(attributes=dict(zip(ENDS, (0.25, 5), strict=True)), integers=range(7)),
    area="activations",
    torch="nn.functional.hardtanh",
    source="ops-nn page aclnnHardtanh",
)
def hardtanh(facts: Facts, self: Array, clip_value_min: float, clip_value_max: float) -> AnyArray:
    """``self``, clamped.

    ::

        min(max(self, clip_value_min), clip_value_max)

    NaN where ``self`` or an end is NaN. Both ends are converted to the dtype of ``self`` first, for
    integers without their fraction; an end that does not fit is converted as C does it. The lower
    end, as given, must not be above the upper end; they are compared as integers if the lower one
    is an integer, so that 0 is not above -0.5. The operator's page lists BOOL for the ends, but the
    software refuses it. Nothing is rounded. ``out`` has the dtype of ``self``.

    As in torch, except that torch accepts ends in the wrong order.
    """
    return np.clip(self, clip_value_min, clip_value_max, out=facts.out)


inplace_hardtanh = in_place(hardtanh)
