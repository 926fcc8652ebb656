"""Tokens that go to experts and come back: what mixtures of experts have in common.

T tokens of H numbers go to K experts each. Row i of T * K, of which i // K is the token, stands at
``places[i]`` among the rows of all experts. A place behind the last row is that of a token that was
dropped, and so is -1 where experts have a capacity, so that there are rows for E experts of C each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from npucall.declare import Attribute, Facts, Input, Kind, Values, rules
from npucall.declare.cuts import BLOCK, cut
from npucall.declare.draft import Draft
from npucall.dtypes import FLOATS, AnyArray, Array
from npucall.errors import TILING_ERROR
from npucall.operators._labels import check_labels
from npucall.operators._norms import no_zero
from npucall.products import A2, A3, ASCEND_950

MOST = 512
"""Experts of a token."""
PADDED = Attribute("padded_mode", Kind.BOOL, "not supported: false")
INDEX = Input("sorted_indices", "the place of each row, as MoeTokenPermute gives it", as_is=True)
ON: dict[str, Any] = {"products": dict.fromkeys((A2, A3), FLOATS), "area": "mixtures of experts"}
ROUTED: dict[str, Any] = {**ON, "products": dict.fromkeys((A2, A3, ASCEND_950), FLOATS)}
"""Where the second versions of routing are."""
UNPADDED = rules.value_fits("False, the only mode that there is", "padded_mode", lambda v: not v)


def late(*each: rules.Rule) -> tuple[rules.Rule, ...]:
    """Rules that the tiling has."""
    return rules.with_status(TILING_ERROR, *each)


def checked(drops: str = "", **inputs: str) -> Values:
    """Of each input, places are 0 or more, and below the first extent of the shape of that name.

    So is -1 among ``places``, where the attribute ``drops`` is odd.
    """

    def limits(facts: Facts) -> dict[str, str]:
        return {name: known for name, known in inputs.items() if known in facts.shapes}

    def check(facts: Facts, given: Mapping[str, Any], attributes: Mapping[str, Any]) -> None:
        for name, known in limits(facts).items():
            for block in facts.blocks(given[name].shape):
                found = facts.read(given[name], block)
                check_places(facts, name, found, attributes.get(drops, 0), known)

    def passes(facts: Facts) -> range:
        return range(min((facts.first(known) for known in limits(facts).values()), default=0))

    return Values(tuple(inputs), check, passes)


def check_places(
    facts: Facts, name: str, places: AnyArray, drops: int = 0, known: str = "places"
) -> None:
    """Raises ArgumentError for a place that is none."""
    dropping = known == "places" and drops % 2
    check_labels(name, places[places != -1] if dropping else places, facts.first(known))


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


More: TypeAlias = "Callable[[slice, slice], AnyArray]"
"""What is added to some rows, in some columns."""


def gathered(
    facts: Facts,
    rows: Array,
    places: AnyArray,
    experts: int,
    factors: AnyArray | None = None,
    more: More | None = None,
    start: Callable[[tuple[slice, ...]], Any] = lambda _: 0,
) -> AnyArray:
    """Of each token the sum of its rows, times their factors, and what it starts from: (T, H).

    Row i of T * K is one of the token i // K.
    """
    out = facts.output("out", facts.shapes["tokens"])

    def add_up(block: tuple[slice, ...]) -> None:
        tokens, columns = block
        total = start(block)
        for expert in range(experts):
            own = slice(tokens.start * experts + expert, tokens.stop * experts, experts)
            found = read_rows(facts, rows, places[own], columns)
            if more is not None:
                found = found + more(own, columns)
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
    experts = len(places) // max(tokens.shape[0], 1)
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
    more: More | None = None,
) -> AnyArray:
    """Of each row the sum of its products with its token."""
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


def added(facts: Facts, bias: Array | None, expert_idx: Array | None) -> More | None:
    """What each row's expert adds to it."""
    if bias is None or expert_idx is None:
        return None
    experts = np.asarray(facts.read(expert_idx, ...)).reshape(-1)
    check_places(facts, "expert_idx", experts, known="experts")
    return lambda rows, columns: np.asarray(facts.read(bias, (experts[rows], columns)), facts.dtype)
