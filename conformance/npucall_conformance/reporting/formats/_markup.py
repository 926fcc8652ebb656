"""Builds HTML and SVG from elements. All text is escaped on its way in; there is no other way."""

from __future__ import annotations

from html import escape
from typing import TypeAlias

from npucall_conformance.reporting.formats.text import clean

_EMPTY = frozenset({"meta"})
"""Elements of HTML that have no end tag."""


class Markup(str):
    """Text that is markup already. Only ``tag`` and ``join`` make it."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | float | None"
Value: TypeAlias = "str | float | bool | None"


def tag(element: str, /, *children: Child, **attributes: Value) -> Markup:
    """An element. ``class_`` is the attribute class, ``stroke_width`` is stroke-width.

    Attributes that are None or False are left out; so are children that are None.
    """
    written = "".join(
        f" {_name(key)}" if value is True else f' {_name(key)}="{_escaped(value)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if element in _EMPTY:
        return Markup(f"<{element}{written}>")
    return Markup(f"<{element}{written}>{join(*children)}</{element}>")


def join(*children: Child) -> Markup:
    """Several children, one after the other."""
    return Markup(
        "".join(c if isinstance(c, Markup) else _escaped(c) for c in children if c is not None)
    )


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _escaped(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return escape(clean(str(value)))
