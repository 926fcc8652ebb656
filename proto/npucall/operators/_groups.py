"""Groups of channels: what GroupNorm and its gradient take and check alike.

A group of (N, C, ...) is a row: its C / group channels follow each other, so nothing is moved.
"""

from __future__ import annotations

from math import prod
from typing import Any

from npucall.declare import Attribute, Kind, rules
from npucall.declare.draft import Draft
from npucall.dtypes import AnyArray
from npucall.errors import AttributeValueError
from npucall.tensors import Shape

EXTENTS = (
    Attribute("n", Kind.INT64, "items", c_name="N"),
    Attribute("c", Kind.INT64, "channels", c_name="C"),
    Attribute("hxw", Kind.INT64, "elements of a channel of an item", c_name="HxW"),
    Attribute("group", Kind.INT64, "groups of channels"),
)
DIVIDED = (
    rules.positive("group"),
    rules.requires(
        "a multiple of group",
        "c",
        holds=lambda draft: draft.attribute("c") % draft.attribute("group") == 0,
        found=lambda draft: draft.attribute("c"),
        error=AttributeValueError,
    ),
)


def rows(draft: Draft) -> Shape:
    """Groups of all items."""
    return draft.attribute("n"), draft.attribute("group")


def row(draft: Draft) -> Shape:
    """The numbers of one of them."""
    return draft.attribute("c") // draft.attribute("group"), draft.attribute("hxw")


ROWS = rules.shape_of("N and group", into="rows", make=rows)
ROW = rules.shape_of("C, HxW and group", into="row", make=row)


def extents_of(name: str) -> rules.Rule:
    """The tensor has the extents that the call says."""

    def fits(draft: Draft) -> bool:
        shape = draft.shape(name)
        told = tuple(draft.attribute(each) for each in ("n", "c", "hxw"))
        return (*shape[:2], prod(shape[2:])) == told

    return rules.requires(
        "(N, C, ...) with HxW elements behind",
        name,
        holds=fits,
        found=lambda draft: f"shape {draft.shape(name)}",
    )


def channels_of(index: tuple[slice, ...], each: int) -> tuple[slice, slice]:
    """Where some groups, of so many channels each, stand in a tensor."""
    items, some = index
    return items, slice(some.start * each, some.stop * each)


def by_channel(groups: AnyArray, some: tuple[slice, slice], hxw: int) -> Any:
    """Rows of groups as (items, channels, elements)."""
    items, channels = (piece.stop - piece.start for piece in some)
    return groups.reshape(items, channels, hxw)
