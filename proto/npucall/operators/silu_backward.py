"""Gradient of the sigmoid linear unit with respect to its input."""

from __future__ import annotations

import numpy as np

from npucall.declare import Facts, Input, Output, elementwise, operator, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT, FLOATS, HALF_AND_SINGLE, AnyArray, Array
from npucall.operators._numerics import sigmoid
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

INPUTS = ("grad_output", "self")
TENSORS = (*INPUTS, "grad_input")
NEWEST = (ASCEND_950,)
"""Here alone inputs may differ in dtype and are broadcast."""


def _mixed_on_950(draft: Draft) -> bool:
    return draft.product in NEWEST and draft.dtype("grad_output") is not draft.dtype("self")


def _equal_or_elsewhere(draft: Draft) -> bool:
    return not _mixed_on_950(draft)


@operator(
    "aclnnSiluBackward",
    Input("grad_output", "gradient of the loss with respect to the forward result"),
    Input("self", "what went into the forward operator"),
    Output("grad_input", "gradient with respect to self", shape="common", dtype="promotion"),
    products={A2: FLOATS, A3: FLOATS, ASCEND_950: FLOATS, ASCEND_910: HALF_AND_SINGLE},
    legacy={ASCEND_310P: HALF_AND_SINGLE, ASCEND_310B: HALF_AND_SINGLE},
    checks=(
        rules.present(*TENSORS),
        *(rules.dtype_in(name, *FLOATS) for name in TENSORS),
        rules.when(
            _mixed_on_950,
            rules.dtype_in("grad_input", FLOAT),
            "on Ascend950 with inputs of two dtypes",
        ),
        rules.when(
            _equal_or_elsewhere,
            rules.same_dtype(*INPUTS, as_="grad_input"),
            "otherwise",
        ),
        # For a call that leaves grad_input to the operator.
        rules.except_on(NEWEST, rules.same_dtype("self", as_="grad_output")),
        rules.supported(*TENSORS),
        rules.promoted(*INPUTS, into="promotion"),
        rules.rank_at_most(8, *INPUTS),
        rules.except_on(NEWEST, rules.same_shape("grad_output", "grad_input")),
        rules.except_on(NEWEST, rules.same_shape("self", "grad_input")),
        rules.except_on(NEWEST, rules.same_shape("self", "grad_output")),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_shape("grad_input", "common", "what the inputs broadcast to"),
        rules.succeed_if_empty(*INPUTS),
    ),
    kernel_dtype=rules.dtype_of("promotion"),
    over=elementwise("common"),
    area="activations",
    torch="nn.functional.silu",
    source="ops-nn page aclnnSiluBackward",
)
def silu_backward(facts: Facts, grad_output: Array, self: Array) -> AnyArray:
    """Gradient of ``silu(self)``, which is ``self * sigmoid(self)``, with respect to ``self``.

    With ``x = self`` and ``s = sigmoid(x) = 1 / (1 + e^-x)``::

        grad_input = grad_output * s * (1 + x - x * s)

    All tensors have one shape and one dtype. On Ascend 950 inputs are broadcast, and may have two
    dtypes; then ``grad_input`` is FLOAT. NaN where ``self`` is infinite, as in torch.

    As in torch, up to rounding: float32 inputs are computed in float64, so that large negative ones
    still give a small gradient where torch's sigmoid is already 0.
    """
    x = np.asarray(self, np.float64)
    s = sigmoid(x)
    return (grad_output * (s * (1 + x * (1 - s)))).astype(facts.dtype)
