"""What gated linear units and their gradients check of the tensor that is halved."""

from __future__ import annotations

from npucall.declare import rules
from npucall.declare.draft import Draft
from npucall.tensors import Shape


def halved(name: str = "self") -> tuple[rules.Rule, ...]:
    """That a tensor can be halved along dim; finds the shape ``half``."""

    def half(draft: Draft) -> Shape:
        shape = list(draft.shape(name))
        shape[draft.attribute("dim")] //= 2
        return tuple(shape)

    return (
        rules.requires(
            "at least one dimension",
            name,
            holds=lambda draft: len(draft.shape(name)) > 0,
            found=lambda draft: f"shape {draft.shape(name)}",
        ),
        rules.dim_of(name),
        rules.requires(
            "an even extent along dim",
            name,
            "dim",
            holds=lambda draft: draft.shape(name)[draft.attribute("dim")] % 2 == 0,
            found=lambda draft: f"shape {draft.shape(name)}, dim {draft.attribute('dim')}",
        ),
        rules.shape_of(name, into="half", make=half),
    )


def places(index: tuple[slice, ...], dim: int, extent: int) -> tuple[tuple[slice, ...], ...]:
    """Where a block of a half stands in the whole: in the first half and in the second."""
    moved = slice(index[dim].start + extent, index[dim].stop + extent)
    return index, (*index[:dim], moved, *index[dim + 1 :])
