"""Masks of outputs: which gradients a call asks for."""

from __future__ import annotations

from collections.abc import Callable

from npucall.declare import rules
from npucall.declare.draft import Draft
from npucall.errors import AttributeValueError


def masked(place: int) -> Callable[[Draft], bool]:
    """Whether ``output_mask`` asks for its output with this number."""
    return lambda draft: any((draft.attribute("output_mask") or ())[place : place + 1])


def mask_of(count: int) -> rules.Rule:
    """The mask has an entry for each of its outputs."""
    return rules.requires(
        f"{count} truth values",
        "output_mask",
        holds=lambda draft: len(draft.attribute("output_mask")) == count,
        found=lambda draft: len(draft.attribute("output_mask")),
        error=AttributeValueError,
    )
