"""Base shapes within the ranks and extents that a statement takes, and stretched ones."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from npucall.tensors import broadcast

if TYPE_CHECKING:
    from npucall.tensors import Shape
    from npucall_conformance.fuzz.draws import Draws
    from npucall_conformance.stating.statement import Statement

_EXTENT, _LONG = 9, 99
_ANY_RANK, _LONG_AMONG, _EMPTY = 4, 10, 20
"""Of so many shapes, one has any rank; one has a long dimension; one is empty."""
_ELEMENTS = 600
"""The loops that find the truth compute about so many elements in a millisecond."""


def base_shape(draw: Draws, statement: Statement) -> Shape:
    """A base shape; one in many is empty, if the statement has empty shapes."""
    base = statement.fitted(_extents(draw, _rank(draw, statement)))
    axes = _axes_that_may_be_empty(statement, len(base))
    if axes and draw.seldom(_EMPTY):
        axis = draw.pick(axes)
        base = (*base[:axis], 0, *base[axis + 1 :])
    return base


def stretched(draw: Draws, statement: Statement, base: Shape, product: str) -> dict[str, Shape]:
    """By name, shapes of the inputs that broadcast; {} if there are none on the product."""
    if not any(not each.products or product in each.products for each in statement.broadcast):
        return {}
    shapes = {name: _smaller(draw, base) for name in statement.space}
    space = broadcast(*shapes.values()) if shapes else base
    for name in statement.expands:
        shapes[name] = _smaller(draw, base if space is None else space)
    return shapes


def _smaller(draw: Draws, shape: Shape) -> Shape:
    """A shape that broadcasts to this one: fewer dimensions, or some of 1."""
    if not draw.flag():
        return shape
    kept = shape[draw.number(0, len(shape)) :]
    return tuple(1 if draw.flag() else extent for extent in kept)


def _rank(draw: Draws, statement: Statement) -> int:
    """A rank; mostly the one that the statement's cases have most often."""
    known = (*statement.base_shapes, *statement.rank_shapes, statement.layout_shape)
    ranks = sorted(map(len, known))
    return draw.number(ranks[0], ranks[-1]) if draw.seldom(_ANY_RANK) else draw.pick(ranks)


def _extents(draw: Draws, rank: int) -> Shape:
    """Mostly short extents; one dimension may be long, but there are not many elements."""
    extents = [draw.number(1, _EXTENT) for _ in range(rank)]
    if rank and draw.seldom(_LONG_AMONG):
        extents[draw.number(0, rank - 1)] = draw.number(1, _LONG)
    for axis in range(rank):
        others = prod(extents) // extents[axis]
        extents[axis] = max(min(extents[axis], _ELEMENTS // others), 1)
    return tuple(extents)


def _axes_that_may_be_empty(statement: Statement, rank: int) -> list[int]:
    empty: list[Any] = [shape for shape in statement.empty_shapes if len(shape) == rank]
    return [axis for axis in range(rank) if any(shape[axis] == 0 for shape in empty)]
