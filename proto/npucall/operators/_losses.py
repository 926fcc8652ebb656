"""What losses have in common: what a reduction keeps, divides by, and makes of nothing."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Any

from npucall.declare import rules
from npucall.operators._numerics import MEAN, NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npucall.declare import Facts
    from npucall.declare.draft import Draft

REDUCTIONS = "0 none, 1 mean, 2 sum; no other"


def is_reduced(draft: Draft) -> bool:
    """Whether the elements of the loss are added up."""
    return bool(draft.attribute("reduction") != NONE)


def reduced(space: str) -> tuple[rules.Rule, rules.Rule]:
    """Find ``kept``, the shape to which a loss of shape ``space`` is summed, and ``result``.

    ``result`` is the shape of the output: all of ``space`` without a reduction, else ().
    """

    def kept(draft: Draft) -> tuple[int, ...]:
        shape = draft.shape(space)
        return (1,) * len(shape) if is_reduced(draft) else shape

    def result(draft: Draft) -> tuple[int, ...]:
        return () if is_reduced(draft) else draft.shape(space)

    return (
        rules.shape_of(space, into="kept", make=kept),
        rules.shape_of(space, into="result", make=result),
    )


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
    meaning = "NaN for a mean, 0 for a sum"
    return rules.fill_if_empty(*names, fill=of_nothing, meaning=meaning, outputs=outputs)
