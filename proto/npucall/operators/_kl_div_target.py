"""What the three variants of aclnnKlDivTargetBackward share."""

from __future__ import annotations

from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Output, Parameter, choice, rules
from npucall.dtypes import AnyArray, Array
from npucall.operators import _numerics

NAME = "aclnnKlDivTargetBackward"
INPUTS = ("grad_output", "self", "target")
TENSORS = (*INPUTS, "grad_target")
REDUCTION = choice("reduction", *_numerics.REDUCTION.words, other="only 1 scales")
"""Of the variants that know one alone."""


def parameters(reduction: Attribute, shape: str) -> tuple[Parameter, ...]:
    """The parameters, which are the same C prototype for all variants."""
    return (
        Input("grad_output", "gradient of the loss with respect to the forward result"),
        Input("self", "log-probabilities"),
        Input("target", "probabilities, or their logarithms if log_target"),
        reduction,
        Attribute("log_target", Kind.BOOL, "target holds logarithms"),
        Output("grad_target", "gradient with respect to target", shape=shape, dtype="target"),
    )


def community_checks(*last: rules.Rule) -> tuple[rules.Rule, ...]:
    """The checks of the community operator.

    Its own end with the exit for empty tensors. The service adds those after it: the operator would
    run on wrong extents, fail without a word, or answer memory that nobody wrote.
    """
    return (
        rules.present(*TENSORS),
        rules.supported(*TENSORS),
        rules.rank_at_most(8, *INPUTS),
        rules.warn_unless("reduction", 0, 1, 2, meaning="this variant scales for 1 alone"),
        rules.succeed_if_empty(*TENSORS),
        rules.broadcast(*INPUTS, into="common"),
        rules.same_dtype("grad_output", "self", "grad_target", as_="target"),
        rules.same_shape("grad_target", "common", "what the inputs broadcast to"),
        *last,
    )


def masked_gradient(
    facts: Facts,
    grad_output: Array,
    self: Array,
    target: Array,
    factor: np.floating[Any],
    *,
    log_target: bool,
) -> AnyArray:
    """The community formula, in its order of operations, each of which rounds.

    ``g * (ln t + 1 - s)``, and 0 where ``t`` is 0 whatever ``g`` is; with ``log_target``
    ``g * ((t + 1 - s) * e^t)``.
    """
    if log_target:
        gradient = grad_output * ((target + 1 - self) * np.exp(target))
    else:
        gradient = grad_output * (np.log(target) + 1 - self)
        gradient = np.where(np.equal(target, 0), gradient.dtype.type(0), gradient)
    return np.multiply(gradient, factor, out=facts.out)
