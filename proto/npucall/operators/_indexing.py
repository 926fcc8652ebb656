"""Places along a dimension that indices name: what operators of them have in common.

A tensor of rank 0 counts as one of shape (1,) everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npucall.declare import Attribute, Facts, Kind, Values, rules
from npucall.declare.draft import Draft
from npucall.dtypes import INT32, INT64, AnyArray, Array
from npucall.operators._labels import check_labels
from npucall.tensors import Shape

DIM = Attribute("dim", Kind.INT64, "the dimension that index has places of")
CONST_DIM = Attribute("dim", Kind.INT64, DIM.description, const=True)


def as_shape(shape: Shape) -> Shape:
    """What a shape counts as."""
    return shape or (1,)


def along(draft: Draft) -> Shape:
    """The extent along the dimension."""
    return (as_shape(draft.shape("self"))[draft.attribute("dim")],)


ALONG = rules.shape_of("self", into="along", make=along)
INDEX = rules.dtype_in("index", INT32, INT64)
OF_RANK_1 = rules.rank_is("index", 0, 1)


def _check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
    del attributes
    index = inputs["index"]
    for block in facts.blocks(index.shape):
        check_labels("index", facts.read(index, block), facts.first("along"))


def _places(facts: Facts) -> range:
    """All of them; rules may end before they look at the dimension, where nothing is indexed."""
    return range(*facts.shapes.get("along", (0,)))


PLACES = Values(("index",), _check, _places)


def part(facts: Facts, array: Array, index: tuple[Any, ...]) -> AnyArray:
    """Elements of an input, whose rank 0 counts as 1."""
    return facts.read(array, index) if array.shape else facts.read(array, ...).reshape(1)[index]


def places_of(facts: Facts, index: Array, piece: slice = slice(None)) -> AnyArray:
    """Some of the places of an index of rank 0 or 1."""
    places = part(facts, index, (piece,))
    check_labels("index", places, facts.first("along"))
    return places
