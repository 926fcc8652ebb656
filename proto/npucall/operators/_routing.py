"""Tokens that go to experts and come back: what mixtures of experts have in common.

T tokens of H numbers go to K experts each. Row i of T * K, of which i // K is the token, stands at
``places[i]`` among the rows of all experts. A place behind the last row is that of a token that was
dropped, and so is -1 where experts have a capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Values, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators._labels import check_labels
from npucall.operators._norms import no_zero
from npucall.products import A2, A3

MOST = 512
"""Experts of a token."""
PADDED = Attribute("padded_mode", Kind.BOOL, "not supported: false")
INDEX = Input("sorted_indices", "the place of each row, as MoeTokenPermute gives it", as_is=True)
ON: dict[str, Any] = {"products": dict.fromkeys((A2, A3), FLOATS), "area": "mixtures of experts"}
UNPADDED = rules.value_fits("False, the only mode that there is", "padded_mode", lambda v: not v)


def late(*each: rules.Rule) -> tuple[rules.Rule, ...]:
    """Rules that the tiling has."""
    return rules.with_status(TILING_ERROR, *each)


def checked(index: str, drops: str = "") -> Values:
    """Places are 0 or more and below their number; -1 too where the attribute ``drops`` is 1."""

    def check(facts: Facts, inputs: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        for block in facts.blocks(inputs[index].shape):
            check_places(facts, index, facts.read(inputs[index], block), attributes.get(drops))

    return Values((index,), check, lambda facts: range(*facts.shapes.get("places", (0,))))


def check_places(facts: Facts, index: str, places: AnyArray, drops: Any = None) -> None:
    """Raises ArgumentError for a place that is none."""
    check_labels(index, places[places != -1] if drops else places, facts.first("places"))


def within(expected: str, name: str, holds: Callable[[Draft], bool], *more: str) -> rules.Rule:
    """A rule about shapes, which the tiling finds."""
    return late(
        rules.requires(
            expected,
            name,
            holds=holds,
            found=lambda draft: " and ".join(str(draft.shape(each)) for each in (name, *more)),
        )
    )[0]


def matrices(*names: str) -> tuple[rules.Rule, ...]:
    """Of rank 2, and with elements."""
    ranks = (rules.rank_is(name, 2) for name in names)
    return late(*ranks, *no_zero(*names))


def read_rows(facts: Facts, array: Array, places: AnyArray, columns: slice) -> AnyArray:
    """Rows by their places, of (rows, H) or (E, C, H), and zeros for those that were dropped."""
    count = int(np.prod(array.shape[:-1]))
    there = (places >= 0) & (places < count)
    index = np.unravel_index(np.where(there, places, 0), array.shape[:-1])
    found = np.asarray(facts.read(array, (*index, columns)), facts.dtype)
    return found if there.all() else np.where(there[:, np.newaxis], found, 0)


def gathered(
    facts: Facts, rows: Array, places: AnyArray, experts: int, factors: AnyArray | None = None
) -> AnyArray:
    """Of each token the sum of its rows, times their factors: (T, H)."""
    out = facts.output("out", facts.shapes["tokens"])

    def add_up(block: tuple[slice, ...]) -> None:
        tokens, columns = block
        total: Any = 0
        for expert in range(experts):
            own = slice(tokens.start * experts + expert, tokens.stop * experts, experts)
            found = read_rows(facts, rows, places[own], columns)
            total = total + (found if factors is None else found * factors[own, np.newaxis])
        out[block] = total

    facts.each(cut(facts.shapes["tokens"], BLOCK), add_up)
    return out


def sent(
    facts: Facts, output: str, tokens: Array, places: AnyArray, factors: AnyArray | None
) -> AnyArray:
    """Each token at the places of its rows, times their factors; rows of no token are 0."""
    *lead, width = facts.shapes["rows"]
    count = int(np.prod(lead))
    origins = np.full(count, -1)
    there = np.flatnonzero((places >= 0) & (places < count))
    origins[places[there]] = there
    experts = len(places) // tokens.shape[0]
    out = facts.output(output, facts.shapes["rows"])

    def send(block: tuple[slice, ...]) -> None:
        *rows, columns = block
        own = origins.reshape(lead)[tuple(rows)]
        row = own.reshape(-1)
        found = read_rows(facts, tokens, np.where(row < 0, -1, row // experts), columns)
        if factors is not None:
            found = found * factors[row, np.newaxis]
        found[row < 0] = 0  # also where a factor is infinite
        out[block] = found.reshape(*own.shape, found.shape[-1])

    facts.each(cut((*lead, width), BLOCK), send)
    return out


def weighed(
    facts: Facts,
    rows: Array,
    tokens: Array,
    places: AnyArray,
    more: Callable[[slice, slice], AnyArray] | None = None,
) -> AnyArray:
    """Of each row the sum of its products with its token; ``more``: what is added to some rows."""
    experts = len(places) // tokens.shape[0]
    sums = np.zeros(len(places))

    def weigh(block: tuple[slice, ...]) -> Any:
        some, columns = block
        found = read_rows(facts, rows, places[some], columns)
        if more is not None:
            found = found + more(some, columns)
        own = np.arange(some.start, some.stop) // experts
        return np.add.reduce(found * read_rows(facts, tokens, own, columns), -1)

    def add(block: tuple[slice, ...], part: Any) -> None:
        sums[block[0]] += part

    facts.each(cut((len(places), tokens.shape[1]), BLOCK), weigh, add)
    return sums


def flat(facts: Facts, array: Array | None) -> AnyArray | None:
    """Factors of all rows, in the formula's dtype."""
    return None if array is None else np.asarray(facts.read(array, ...), facts.dtype).reshape(-1)
