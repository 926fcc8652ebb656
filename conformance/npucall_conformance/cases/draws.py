"""What a drawn call is made of: layouts, shapes, attributes, special numbers.

Everything is drawn from small whole numbers, of which 0 is the simplest. So a call is a list of
numbers: a text of them, in the id of its case, finds it again, and smaller numbers make it smaller.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from random import Random
from typing import Any, TypeVar

import numpy as np

from npucall.tensors import Shape
from npucall_conformance.cases.arrangements import DENSE, Arrangement
from npucall_conformance.cases.case import Marks
from npucall_conformance.cases.large import special_values
from npucall_conformance.stating.parts import Attributes, Setup
from npucall_conformance.stating.promotion import common_shape
from npucall_conformance.stating.statement import Statement

T = TypeVar("T")
_DIGITS = string.digits + string.ascii_letters
"""Each number that is drawn is one of these in a text."""


class Draws:
    """Draws one thing after the other. Earlier values are simpler, and 0 is the simplest."""

    def __init__(self, given: Sequence[int] = (), random: Random | None = None) -> None:
        self._given = given
        self._random = random
        self.made: list[int] = []
        """The numbers that were drawn: first the given ones, then random ones, or zeros."""

    def number(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, which are at most 61 apart."""
        place, most = len(self.made), high - low
        if place < len(self._given):
            drawn = min(self._given[place], most)
        else:
            drawn = self._random.randint(0, most) if self._random is not None else 0
        self.made.append(drawn)
        return low + drawn

    def flag(self) -> bool:
        """Yes or no; no is simpler."""
        return bool(self.number(0, 1))

    def seldom(self, among: int) -> bool:
        """Yes once among so many."""
        return self.number(0, among - 1) == among - 1

    def pick(self, values: Sequence[T]) -> T:
        """One of them."""
        most = len(_DIGITS)
        if len(values) <= most:
            return values[self.number(0, len(values) - 1)]
        place = self.number(0, (len(values) - 1) // most) * most + self.number(0, most - 1)
        return values[place % len(values)]

    def several(self, most: int, one: Callable[[], T]) -> tuple[T, ...]:
        """Up to so many items."""
        return tuple(one() for _ in range(self.number(0, most)))


def numbers_of(text: str) -> list[int]:
    """The numbers that a text stands for. Raises ValueError for other texts."""
    if not set(text) <= set(_DIGITS):
        raise ValueError(f"case: expected letters and digits behind fuzz/, found {text}")
    return [_DIGITS.index(digit) for digit in text]


def text_of(numbers: Sequence[int]) -> str:
    """A text for numbers; zeros at its end, which are drawn anyway, are left out."""
    return "".join(_DIGITS[number] for number in numbers).rstrip("0") or "0"


_RANK = 8
"""A layout describes so many dimensions."""
_WINDOW = 5
"""Strides of inputs whose elements share memory in any way are at most this."""
_OF_OUTPUTS = ("dense", "strided")
_OF_INPUTS = ("dense", "strided", "strided", "expanded", "windows")


def layout(draw: Draws, *, output: bool) -> Arrangement:
    """Any layout that an input, or an output, may have; the simplest is dense."""
    kind = draw.pick(_OF_OUTPUTS if output else _OF_INPUTS)
    if kind == "dense":
        return DENSE
    offset, behind = draw.number(0, 5), draw.number(0, 3)
    if kind == "windows":
        return Arrangement(strides=_numbers(draw, _WINDOW), offset=offset, behind=behind)
    expanded = draw.several(_RANK, draw.flag) if kind == "expanded" else ()
    places, gaps = _numbers(draw, _RANK), _numbers(draw, 3)
    return Arrangement("drawn", places, gaps, expanded, offset=offset, behind=behind)


def _numbers(draw: Draws, most: int) -> tuple[int, ...]:
    return draw.several(_RANK, lambda: draw.number(0, most))


_EXTENT, _LONG = 9, 61
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


def stretched(draw: Draws, statement: Statement, base: Shape) -> dict[str, Shape]:
    """By name, shapes of the inputs that broadcast; {} if none do."""
    shapes = {name: _smaller(draw, base) for name in statement.space}
    space = common_shape(*shapes.values()) if shapes else base
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
    """Axes for which alone one of the statement's empty shapes is empty."""
    empty = [each for each in statement.empty_shapes if len(each) == rank and each.count(0) == 1]
    return [axis for axis in range(rank) if any(shape[axis] == 0 for shape in empty)]


_PARTS = 16
"""The range from the smallest of an attribute's values to the largest has so many parts."""


def attributes(draw: Draws, statement: Statement, base: Shape) -> dict[str, Any]:
    """Every attribute of the statement; some may have the values of one of its setups."""
    chosen = {
        name: _value(
            draw,
            [value(base) if callable(value) else value for value in values],
            [row.changes[name] for row in statement.invalid if name in row.changes],
        )
        for name, values in statement.attributes.items()
    }
    special = _special(statement)
    return {**chosen, **draw.pick(special)} if special and draw.seldom(4) else chosen


def _value(draw: Draws, values: list[Any], refused: list[Any]) -> Any:
    """One of the values; for numbers also one between them, or next to one, if none is refused."""
    number = draw.pick(values)
    plain = all(type(value) in (int, float) for value in values)
    how = draw.pick(("listed", "between", "between", "next to"))
    if not plain or min(values) == max(values) or how == "listed":
        return number
    low, high = min(values), max(values)
    if any(isinstance(each, int | float) and low < each < high for each in refused):
        return number
    if all(isinstance(value, int) for value in values):
        return low + draw.number(0, min(high - low, _PARTS))
    if how == "between":
        return low + (high - low) * draw.number(0, _PARTS) / _PARTS
    towards = np.float32(high if number == low else low)
    return float(np.nextafter(np.float32(number), towards))


def _special(statement: Statement) -> list[Attributes]:
    """Attributes of setups that give nothing else."""
    return [
        setup.attributes
        for setup in (*statement.reductions, *statement.edges)
        if setup.attributes and Setup(setup.note, attributes=setup.attributes) == setup
    ]


_MARKS, _PLACES = 6, 60
_POWERS = (0, 0, 2, -12, -30)
"""Of 2, by which all of a tensor's other numbers are multiplied."""


def sprinkled(draw: Draws, statement: Statement) -> dict[str, Marks]:
    """Special values in inputs that have no dtypes of their own."""
    found = {}
    extreme = draw.flag()
    for each in statement.inputs:
        if statement.sprinkled and not each.dtypes and draw.flag():
            power = draw.pick(_POWERS) if extreme else 0
            special = special_values(statement, each.name, extreme=extreme)
            found[each.name] = Marks(draw.several(_MARKS, partial(_mark, draw, special)), power)
    return found


def _mark(draw: Draws, numbers: tuple[float, ...]) -> tuple[int, float]:
    return draw.number(0, _PLACES), draw.pick(numbers)
