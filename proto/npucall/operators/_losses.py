"""What losses have in common: what a reduction keeps, divides by, and makes of nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nan
from typing import Any

from npucall.declare import Facts, rules
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, HALF_AND_SINGLE
from npucall.operators._numerics import MEAN, NONE
from npucall.products import A2, A3, ASCEND_310B, ASCEND_310P, ASCEND_910, ASCEND_950

PRODUCTS = {
    A2: FLOATS,
    A3: FLOATS,
    ASCEND_950: FLOATS,
    ASCEND_910: HALF_AND_SINGLE,
    ASCEND_310P: HALF_AND_SINGLE,
}
OF_NOTHING = "NaN for a mean, 0 for a sum"
LEGACY = {ASCEND_310B: HALF_AND_SINGLE}


def is_reduced(draft: Draft) -> bool:
    """Whether the elements of the loss are added up."""
    return bool(draft.attribute("reduction") != NONE)


def is_whole(draft: Draft) -> bool:
    """Whether the loss has every element."""
    return not is_reduced(draft)


def reduced(space: str, into: str = "result") -> tuple[rules.Rule, rules.Rule]:
    """Find ``kept``, the shape to which a loss of shape ``space`` is summed, and ``into``.

    That is the shape of the output: all of ``space`` without a reduction, else ().
    """

    def kept(draft: Draft) -> tuple[int, ...]:
        shape = draft.shape(space)
        return (1,) * len(shape) if is_reduced(draft) else shape

    def result(draft: Draft) -> tuple[int, ...]:
        return () if is_reduced(draft) else draft.shape(space)

    return (
        rules.shape_of(space, into="kept", make=kept),
        rules.shape_of(space, into=into, make=result),
    )


def whole(out: str, like: str, meaning: str = "") -> rules.Rule:
    """Without a reduction the output has the shape ``like``, which ``meaning`` says."""
    return rules.when(is_whole, rules.same_shape(out, like, meaning), "reduction 0")


def single(out: str) -> rules.Rule:
    """With a reduction the output has one element, whatever its rank."""
    return rules.when(is_reduced, rules.one_element(out), "any other reduction")


def factor_of(space: str) -> Callable[[Facts, Mapping[str, Any]], Any]:
    """What a sum is multiplied by: 1 / elements of the shape ``space`` for a mean, else 1."""

    def factor(facts: Facts, attributes: Mapping[str, Any]) -> Any:
        is_mean = attributes["reduction"] == MEAN
        return facts.reciprocal(facts.count(space) if is_mean else 1)

    return factor


def of_nothing(draft: Draft) -> float | None:
    """What a loss without elements is: NaN as a mean, 0 as a sum."""
    if not is_reduced(draft):
        return None
    return nan if draft.attribute("reduction") == MEAN else 0.0


def filled_if_empty(*names: str, outputs: tuple[str, ...] = ()) -> rules.Rule:
    """The call is done if one of them is empty; ``outputs``: the losses, if not all of them."""
    return rules.fill_if_empty(*names, fill=of_nothing, meaning=OF_NOTHING, outputs=outputs)
