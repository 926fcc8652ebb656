"""Attention in blocks of scores, which never exist all at once.

For each item and head, with the rows i of the queries and j of the keys::

    S[i, j] = scale * (query[i] . key[j] + bias[i, j]), the lowest float32 where (i, j) is masked
    P[i, j] = e^(S[i, j] - max[i]) / sum[i]      max[i], sum[i] of the row's S and e^(S - max)
    out[i]  = sum over j of P[i, j] * value[j]

The gradients, of ``dy`` with respect to ``out``::

    d[i, j] = P[i, j] * (dy[i] . value[j] - dy[i] . out[i])
    dq[i]   = scale * sum over j of d[i, j] * key[j]
    dk[j]   = scale * sum over i of d[i, j] * query[i]
    dv[j]   = sum over i of P[i, j] * dy[i]

Several heads of queries may share one of keys and values, whose gradients are sums over them then.
P and d are rounded to the kernel's dtype before they are multiplied by a matrix.

A block of rows goes through the columns piece by piece: where a maximum grows, what was summed so
far is multiplied by e^(old - new). The gradients are taken twice, for ``dq`` by rows, for ``dk``
and ``dv`` by columns: so each block is by itself, and holds nothing but its own sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.dtypes import AnyArray, Array
from npucall.tensors import Shape

LOWEST = float(np.finfo(np.float32).min)
"""The score of what is masked: a row of which nothing is left has equal shares."""
LANES = 8
"""Equal copies of a row's maximum, and of its sum."""
_SHORT, _LONG = 256, 1024
"""Rows of a block, and columns that it takes at a time; for the gradients of keys the reverse."""
_PIECE = 1 << 17
"""Most elements of these columns, whose heads may be wide."""


class Sizes(NamedTuple):
    """Extents of a tensor of heads."""

    items: int
    heads: int
    rows: int
    width: int


@dataclass(frozen=True)
class HeadLayout:
    """Where items, heads and rows of a tensor are: in the order of the letters B, N, S and D.

    ``H`` is heads and their elements in one dimension.
    """

    text: str

    def sizes(self, shape: Shape, heads: int) -> Sizes:
        """The sizes of a tensor, of so many heads if the layout has H."""
        extents = dict(zip(self.text, shape, strict=True))
        if "H" in extents:
            extents |= {"N": heads, "D": extents["H"] // max(heads, 1)}
        return Sizes(*(extents[letter] for letter in "BNSD"))

    def heads(self, shape: Shape, width: int) -> int:
        """How many heads of that width a tensor has."""
        extents = dict(zip(self.text, shape, strict=True))
        return extents["N"] if "N" in extents else extents["H"] // max(width, 1)

    def index(self, item: int, head: int, rows: slice, width: int) -> tuple[int | slice, ...]:
        """Where rows of a head are."""
        elements = slice(head * width, (head + 1) * width)
        places: dict[str, int | slice] = {
            "B": item,
            "N": head,
            "S": rows,
            "D": slice(None),
            "H": elements,
        }
        return tuple(places[letter] for letter in self.text)


LAYOUTS = {text: HeadLayout(text) for text in ("BSH", "SBH", "BSND", "BNSD")}


class Band(NamedTuple):
    """What a row i sees: the columns ``i - before`` to ``i + after``."""

    before: int
    after: int

    def hides(self, rows: slice, columns: slice) -> AnyArray | None:
        """Where a row does not see a column; None if all see all of these."""
        first, last = rows.stop - 1 - self.before, rows.start + self.after
        if first <= columns.start and last >= columns.stop - 1:
            return None
        places = np.arange(rows.start, rows.stop)[:, np.newaxis]
        distance = np.arange(columns.start, columns.stop) - places
        hidden: AnyArray = (distance < -self.before) | (distance > self.after)
        return hidden

    def seen_by(self, rows: slice) -> tuple[int, int]:
        """The columns that some of these rows see, from one to before another."""
        return rows.start - self.before, rows.stop + self.after

    def seeing(self, columns: slice) -> tuple[int, int]:
        """The rows that see some of these columns."""
        return columns.start - self.after, columns.stop + self.before

    def leaves_nothing(self, rows: slice, count: int) -> AnyArray:
        """The rows that see none of so many columns."""
        places = np.arange(rows.start, rows.stop)
        return (places - self.before >= count) | (places + self.after < 0)


@dataclass
class Attention:
    """The scores of a call."""

    facts: Facts
    query: Array
    key: Array
    value: Array
    layout: HeadLayout
    heads: int
    scale: float
    bias: Array | None = None
    mask: Array | None = None
    """Not 0 where a column is hidden."""
    band: Band | None = None
    """What rows see besides; those that see nothing of it have a result of 0. Without a mask what
    it hides is not computed."""
    strict: bool = False
    """So have rows of which the mask leaves nothing."""

    def __post_init__(self) -> None:
        layout = self.layout
        self.of_query = layout.sizes(self.query.shape, self.heads)
        heads = layout.heads(self.key.shape, self.of_query.width)
        self.of_key = layout.sizes(self.key.shape, heads)
        self.of_value = layout.sizes(self.value.shape, heads)
        self.group = self.heads // max(heads, 1)
        self.factor = self.facts.dtype.type(self.scale)
        self._long = min(_LONG, _PIECE // max(self.of_query.width, 1))

    def rows_of(self, array: Array, sizes: Sizes, item: int, head: int, rows: slice) -> AnyArray:
        """Rows of a head, as a matrix."""
        return self.facts.read(array, self.layout.index(item, head, rows, sizes.width))

    def columns(self, rows: slice) -> Iterator[slice]:
        """The columns that have to be computed for these rows, piece by piece."""
        return self._computed(self.of_key.rows, self.band and self.band.seen_by(rows))

    def rows(self, columns: slice) -> Iterator[slice]:
        """The rows that have to be computed for these columns."""
        return self._computed(self.of_query.rows, self.band and self.band.seeing(columns))

    def _computed(self, count: int, within: tuple[int, int] | None) -> Iterator[slice]:
        """What has to be computed of so many rows or columns, of which a band has these."""
        first, last = (0, count) if within is None or self.mask is not None else within
        return _pieces(max(first, 0), min(last, count), self._long)

    def scores(
        self, query: AnyArray, keys: AnyArray, item: int, head: int, rows: slice, columns: slice
    ) -> tuple[AnyArray, AnyArray | None]:
        """S of queries that are scaled already; and what is hidden of it, if anything may be."""
        scores = query @ keys.T
        if self.bias is not None:
            bias = self.facts.read(self.bias, _part(self.bias.shape, item, head, rows, columns))
            scores += bias * self.factor
        hidden = None if self.band is None else self.band.hides(rows, columns)
        if self.mask is not None:
            masked = self.facts.read(self.mask, _part(self.mask.shape, item, head, rows, columns))
            hidden = (masked != 0) if hidden is None else (masked != 0) | hidden
        if hidden is not None:
            np.copyto(scores, self.facts.dtype.type(LOWEST), where=hidden)
        return scores, hidden


def attend(call: Attention, out: Any, maxima: Any, sums: Any) -> None:
    """Writes attention, the maximum of each row of scores, and the sum of e^(score - maximum)."""

    def compute(block: tuple[int, int, slice]) -> None:
        item, head, rows = block
        result, maximum, total = _attended(call, item, head, rows)
        out[call.layout.index(item, head, rows, call.of_value.width)] = result
        for sink, found in ((maxima, maximum), (sums, total)):
            sink[item, head, rows] = np.broadcast_to(found, (len(found), LANES))

    call.facts.each(_blocks(call.of_query), compute)


def _attended(
    call: Attention, item: int, head: int, rows: slice
) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The result of some rows, their maxima and their sums."""
    facts, own = call.facts, head // call.group
    query = call.rows_of(call.query, call.of_query, item, head, rows) * call.factor
    count = len(query)
    maximum = np.full((count, 1), LOWEST, facts.dtype)
    total = np.zeros((count, 1), facts.dtype)
    result = np.zeros((count, call.of_value.width), facts.dtype)
    nothing = np.full(count, call.strict)
    for columns in call.columns(rows):
        keys = call.rows_of(call.key, call.of_key, item, own, columns)
        values = call.rows_of(call.value, call.of_value, item, own, columns)
        power, hidden = call.scores(query, keys, item, head, rows, columns)
        if call.strict:
            nothing &= False if hidden is None else np.broadcast_to(hidden, power.shape).all(1)
        largest = np.maximum(maximum, power.max(1, keepdims=True))
        power -= largest
        np.exp(power, out=power)
        if columns.start:
            total *= (shrunk := np.exp(maximum - largest))
            result *= shrunk
        maximum = largest
        total += power.sum(1, keepdims=True)
        result += facts.rounded(power) @ values
    if call.band is not None:
        nothing |= call.band.leaves_nothing(rows, call.of_key.rows)
    if nothing.any():
        result[nothing], maximum[nothing], total[nothing] = 0, LOWEST, -LOWEST
    result /= total
    return result, maximum, total


class Given(NamedTuple):
    """The gradient of the result, and what the forward operator has given."""

    dy: Array
    out: Array
    maxima: Array
    sums: Array


class _Rows:
    """Rows of a head, as the gradients need them.

    1 / sum is a factor of each row of P, and so of what P multiplies: here it is in ``dy``. The
    largest sum is that of a row that sees nothing, which has no gradient.
    """

    def __init__(self, call: Attention, given: Given, item: int, head: int, rows: slice) -> None:
        facts, first = call.facts, (item, head, rows, slice(0, 1))
        self._call, self._place = call, (item, head, rows)
        self.query = call.rows_of(call.query, call.of_query, item, head, rows) * call.factor
        self.dy = call.rows_of(given.dy, call.of_value, item, head, rows)
        sums = facts.read(given.sums, first)
        self.dy = self.dy / np.where(sums == -LOWEST, facts.dtype.type(np.inf), sums)
        out = call.rows_of(given.out, call.of_value, item, head, rows)
        self._shift = (self.dy * out).sum(1, keepdims=True)
        self._maximum = facts.read(given.maxima, first)

    def through(
        self, keys: AnyArray, values: AnyArray, columns: slice
    ) -> tuple[AnyArray, AnyArray]:
        """P and d of some columns, both without 1 / sum in P, and rounded."""
        power, _ = self._call.scores(self.query, keys, *self._place, columns)
        power -= self._maximum
        np.exp(power, out=power)
        through = self.dy @ values.T
        through -= self._shift
        through *= power
        return self._call.facts.rounded(power), self._call.facts.rounded(through)


def attend_back(call: Attention, given: Given, dq: Any, dk: Any, dv: Any) -> None:
    """Writes the gradients of queries, keys and values."""
    facts, of_query, of_key, of_value = call.facts, call.of_query, call.of_key, call.of_value

    def both(item: int, head: int, columns: slice) -> tuple[AnyArray, AnyArray]:
        keys = call.rows_of(call.key, of_key, item, head, columns)
        return keys, call.rows_of(call.value, of_value, item, head, columns)

    def by_rows(block: tuple[int, int, slice]) -> None:
        item, head, place = block
        rows = _Rows(call, given, item, head, place)
        total = np.zeros_like(rows.query)
        for columns in call.columns(place):
            keys, values = both(item, head // call.group, columns)
            total += rows.through(keys, values, columns)[1] @ keys
        dq[call.layout.index(item, head, place, of_query.width)] = total * call.factor

    def by_columns(block: tuple[int, int, slice]) -> None:
        item, head, columns = block
        keys, values = both(item, head, columns)
        of_keys, of_values = np.zeros_like(keys), np.zeros_like(values)
        for own in range(head * call.group, (head + 1) * call.group):
            for place in call.rows(columns):
                rows = _Rows(call, given, item, own, place)
                power, through = rows.through(keys, values, columns)
                of_keys += through.T @ rows.query
                of_values += power.T @ rows.dy
        dk[call.layout.index(item, head, columns, of_key.width)] = of_keys
        dv[call.layout.index(item, head, columns, of_value.width)] = of_values

    facts.each(_blocks(of_query), by_rows)
    facts.each(_blocks(of_key), by_columns)


def _blocks(sizes: Sizes) -> list[tuple[int, int, slice]]:
    """Item, head and rows of each block."""
    places = list(_pieces(0, sizes.rows, _SHORT))
    return [(*head, rows) for head in np.ndindex(sizes.items, sizes.heads) for rows in places]


def _pieces(first: int, last: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, last)) for start in range(first, last, step))


def _part(shape: Shape, item: int, head: int, rows: slice, columns: slice) -> tuple[Any, ...]:
    """Where the part of a mask or bias for some scores is; an extent of 1 belongs to all of them.

    It has two dimensions, or four: with items and heads in front.
    """
    *lead, height, _ = shape
    own = (0 if extent == 1 else n for extent, n in zip(lead, (item, head), strict=False))
    return (*own, slice(0, 1) if height == 1 else rows, columns)
