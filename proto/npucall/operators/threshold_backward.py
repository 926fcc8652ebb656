"""Gradient of a threshold, with 0 of the rectified linear unit, with respect to its input."""

from __future__ import annotations

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
from npucall.dtypes import FLOATS, HALF_AND_SINGLE, INT8, INT32, INT64, UINT8, AnyArray, Array
from npucall.errors import DTypeError
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "self")
INTEGERS = (INT32, INT8, UINT8)
NEAR_ZERO = 2.0**-23
"""A threshold up to this, of either sign, counts as 0."""


def _counted(threshold: float) -> float:
    return 0 if abs(threshold) <= NEAR_ZERO else threshold


def _int64_for_zero(name: str) -> rules.Rule:
    """On Ascend 950 alone INT64 is taken, by its ReLU kernel."""

    def holds(draft: Draft) -> bool:
        return draft.dtype(name) is not INT64 or _counted(draft.attribute("threshold")) == 0

    return rules.requires(
        "another dtype than INT64, unless threshold is 0",
        name,
        "threshold",
        holds=holds,
        found=lambda draft: f"INT64 and threshold {draft.attribute('threshold')}",
        error=DTypeError,
    )


@operator(
    "aclnnThresholdBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator, or for 0 what came out"),
    Attribute("threshold", Kind.SCALAR, "up to here self had no effect; 0 for ReLU"),
    Output("out", "gradient with respect to self", shape="common", dtype="self"),
    products={
        A2: (*FLOATS, *INTEGERS),
        A3: (*FLOATS, *INTEGERS),
        ASCEND_950: (*FLOATS, *INTEGERS, INT64),
        ASCEND_910: (*HALF_AND_SINGLE, *INTEGERS),
        ASCEND_310P: (*HALF_AND_SINGLE, *INTEGERS),
    },
    legacy={ASCEND_310B: (*HALF_AND_SINGLE, *INTEGERS)},
    checks=(
        rules.present("threshold", "out"),
        rules.present(*INPUTS),
        rules.real("threshold"),  # the service's; what the operator makes of one is not known
        rules.supported("grad_output"),
        _int64_for_zero("grad_output"),
        rules.supported("self"),
        _int64_for_zero("self"),
        rules.same_dtype("grad_output", as_="self"),
        rules.same_dtype("out", as_="self"),
        rules.rank_at_most(8, *INPUTS),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("out", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("self"),
    over=elementwise("common"),
    sample=Sample(attributes={"threshold": 0}),
    area="activations",
    torch="nn.functional.threshold",
    source="ops-nn page aclnnThresholdBackward",
)
def threshold_backward(facts: Facts, grad_output: Array, self: Array, threshold: float) -> AnyArray:
    """Gradient of ``threshold(self, threshold, value)`` with respect to ``self``.

    ::

        out = 0              where self <= threshold, whatever grad_output is
        out = grad_output    elsewhere, also where self is NaN

    ``threshold`` is converted to float32, and counts as 0 if its absolute value is at most 2^-23.
    Nothing is rounded. All tensors have one dtype; only Ascend 950 takes INT64, with threshold 0.
    ``out`` has the shape that the inputs broadcast to. For INT32 and a threshold other than 0 a
    device computes in FLOAT, exact to 2^24; the reference is exact.

    Differs from torch for thresholds that are nearly 0, and for integers with a fractional
    threshold: torch takes its integer part.
    """
    none = np.asarray(grad_output).dtype.type(0)
    return np.where(np.less_equal(self, _counted(threshold)), none, grad_output)
