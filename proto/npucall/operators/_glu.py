"""What the gated linear unit and its gradient check of the tensor that is halved."""

from __future__ import annotations

from npucall.declare import rules
from npucall.declare.draft import Draft
from npucall.tensors import Shape


def half(draft: Draft) -> Shape:
    """The shape of self with half its extent along dim."""
    shape = list(draft.shape("self"))
    shape[draft.attribute("dim")] //= 2
    return tuple(shape)


HALVED = (
    rules.requires(
        "at least one dimension",
        "self",
        holds=lambda draft: len(draft.shape("self")) > 0,
        found=lambda draft: f"shape {draft.shape('self')}",
    ),
    rules.dim_of("self"),
    rules.requires(
        "an even extent along dim",
        "self",
        "dim",
        holds=lambda draft: draft.shape("self")[draft.attribute("dim")] % 2 == 0,
        found=lambda draft: f"shape {draft.shape('self')}, dim {draft.attribute('dim')}",
    ),
    rules.shape_of("self", into="half", make=half),
)
"""That self can be halved along dim; finds the shape ``half``."""
