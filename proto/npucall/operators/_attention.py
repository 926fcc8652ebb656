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
from npucall.declare.cuts import cut
from npucall.dtypes import AnyArray, Array
from npucall.operators._heads import Band, HeadLayout, HeadRows, Sizes
from npucall.tensors import Shape

LOWEST = float(np.finfo(np.float32).min)
"""The score of what is masked: a row of which nothing is left has equal shares."""
LANES = 8
"""Equal copies of a row's maximum, and of its sum."""
_SHORT, _LONG = 256, 1024
"""Rows of a block, and columns that it takes at a time; for the gradients of keys the reverse."""
_STACK = 1 << 16
"""Scores of small heads that are computed at a time."""
_PIECE = 1 << 17
"""Most elements of these columns, whose heads may be wide."""


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
    scaled_bias: bool = True
    """The bias is added before scores are scaled."""

    def __post_init__(self) -> None:
        layout = self.layout
        self.of_query = layout.sizes(self.query.shape, self.heads)
        heads = layout.heads(self.key.shape, self.of_query.width)
        self.of_key = layout.sizes(self.key.shape, heads)
        self.of_value = layout.sizes(self.value.shape, heads)
        self.group = self.heads // max(heads, 1)
        self.factor = self.facts.dtype.type(self.scale)
        self._long = min(_LONG, _PIECE // max(self.of_query.width, 1))

    def rows_of(self, array: Array, sizes: Sizes, place: HeadRows) -> AnyArray:
        """Rows of heads, a matrix of each."""
        block = self.facts.read(array, self.layout.index(place, sizes.width))
        return self.layout.matrices(block, sizes.width)

    def shared(self, place: HeadRows, columns: slice) -> HeadRows:
        """Columns of the keys of these heads."""
        if self.group == 1:
            return place._replace(rows=columns)
        own = place.heads.start // self.group
        return HeadRows(place.items, slice(own, own + 1), columns)

    def sharing(self, there: HeadRows) -> Iterator[HeadRows]:
        """The rows of queries that see these columns, head by head if several share them."""
        several, first = self.group, there.heads.start * self.group
        own = [slice(head, head + 1) for head in range(first, first + several)]
        for heads in own if several > 1 else [there.heads]:
            for rows in self.rows(there.rows):
                yield HeadRows(there.items, heads, rows)

    def blocks(self, sizes: Sizes, others: Sizes) -> list[HeadRows]:
        """What is computed by itself: some rows; of small heads, if none is shared, of several."""
        rows, columns = min(sizes.rows, _SHORT), min(others.rows, _LONG)
        largest = max(rows * columns, (rows + columns) * sizes.width, 1)
        many = max(_STACK // largest, 1) if self.group == 1 else 1
        pieces = list(_pieces(0, sizes.rows, _SHORT))
        heads = cut((sizes.items, sizes.heads), many)
        return [HeadRows(items, some, rows) for items, some in heads for rows in pieces]

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
        self, query: AnyArray, keys: AnyArray, place: HeadRows, columns: slice
    ) -> tuple[AnyArray, AnyArray | None]:
        """S of queries that are scaled already; and what is hidden of it, if anything may be."""
        scores = query @ _turned(keys)
        if self.bias is not None:
            bias = self.facts.read(self.bias, _part(self.bias.shape, place, columns))
            scores += bias * self.factor if self.scaled_bias else bias
        hidden = None if self.band is None else self.band.hides(place.rows, columns)
        if self.mask is not None:
            masked = self.facts.read(self.mask, _part(self.mask.shape, place, columns))
            hidden = (masked != 0) if hidden is None else (masked != 0) | hidden
        if hidden is not None:
            np.copyto(scores, self.facts.dtype.type(LOWEST), where=hidden)
        return scores, hidden


def attend(call: Attention, out: Any, maxima: Any, sums: Any) -> None:
    """Writes attention, the maximum of each row of scores, and the sum of e^(score - maximum)."""

    def compute(place: HeadRows) -> None:
        result, maximum, total = _attended(call, place)
        out[call.layout.index(place, call.of_value.width)] = call.layout.block(result)
        for sink, found in ((maxima, maximum), (sums, total)):
            sink[place] = np.broadcast_to(found, (*found.shape[:-1], LANES))

    call.facts.each(call.blocks(call.of_query, call.of_key), compute)


def _attended(call: Attention, place: HeadRows) -> tuple[AnyArray, AnyArray, AnyArray]:
    """The result of some rows, their maxima and their sums."""
    facts, rows = call.facts, place.rows
    query = call.rows_of(call.query, call.of_query, place) * call.factor
    counts = query.shape[:-1]
    maximum = np.full((*counts, 1), LOWEST, facts.dtype)
    total = np.zeros((*counts, 1), facts.dtype)
    result = np.zeros((*counts, call.of_value.width), facts.dtype)
    nothing = np.full(counts, call.strict or not call.of_key.rows)
    for columns in call.columns(rows):
        there = call.shared(place, columns)
        keys = call.rows_of(call.key, call.of_key, there)
        values = call.rows_of(call.value, call.of_value, there)
        power, hidden = call.scores(query, keys, place, columns)
        if call.strict:
            nothing &= False if hidden is None else np.broadcast_to(hidden, power.shape).all(-1)
        largest = np.maximum(maximum, power.max(-1, keepdims=True))
        power -= largest
        np.exp(power, out=power)
        if columns.start:
            total *= (shrunk := np.exp(maximum - largest))
            result *= shrunk
        maximum = largest
        total += power.sum(-1, keepdims=True)
        result += facts.rounded(power) @ values
    if call.band is not None:
        nothing |= call.band.leaves_nothing(rows, call.of_key.rows)
    if nothing.any():
        result[nothing], maximum[nothing], total[nothing] = 0, LOWEST, -LOWEST
    result /= total
    return result, maximum, total


class Given(NamedTuple):
    """The gradient of the result, and what the forward operator has given."""

    dy: Any
    out: Any
    maxima: Any
    sums: Any


class _Rows:
    """Rows of a head, as the gradients need them.

    1 / sum is a factor of each row of P, and so of what P multiplies: here it is in ``dy``. The
    largest sum is that of a row that sees nothing, which has no gradient.
    """

    def __init__(self, call: Attention, given: Given, place: HeadRows) -> None:
        facts, first = call.facts, (*place, slice(0, 1))
        self._call, self._place = call, place
        self.query = call.rows_of(call.query, call.of_query, place) * call.factor
        self.dy = call.rows_of(given.dy, call.of_value, place)
        sums = facts.read(given.sums, first)
        self.dy = self.dy / np.where(sums == -LOWEST, facts.dtype.type(np.inf), sums)
        out = call.rows_of(given.out, call.of_value, place)
        self._shift = (self.dy * out).sum(-1, keepdims=True)
        self._maximum = facts.read(given.maxima, first)

    def through(
        self, keys: AnyArray, values: AnyArray, columns: slice
    ) -> tuple[AnyArray, AnyArray]:
        """P and d of some columns, both without 1 / sum in P, and rounded."""
        power, _ = self._call.scores(self.query, keys, self._place, columns)
        power -= self._maximum
        np.exp(power, out=power)
        through = self.dy @ _turned(values)
        through -= self._shift
        through *= power
        return self._call.facts.rounded(power), self._call.facts.rounded(through)


def attend_back(call: Attention, given: Given, dq: Any, dk: Any, dv: Any) -> None:
    """Writes the gradients of queries, keys and values."""
    facts, of_query, of_key, of_value = call.facts, call.of_query, call.of_key, call.of_value

    def both(there: HeadRows) -> tuple[AnyArray, AnyArray]:
        return call.rows_of(call.key, of_key, there), call.rows_of(call.value, of_value, there)

    def by_rows(place: HeadRows) -> None:
        rows = _Rows(call, given, place)
        total = np.zeros_like(rows.query)
        for columns in call.columns(place.rows):
            keys, values = both(call.shared(place, columns))
            total += rows.through(keys, values, columns)[1] @ keys
        dq[call.layout.index(place, of_query.width)] = call.layout.block(total * call.factor)

    def by_columns(there: HeadRows) -> None:
        keys, values = both(there)
        of_keys, of_values = np.zeros_like(keys), np.zeros_like(values)
        for place in call.sharing(there):
            rows = _Rows(call, given, place)
            power, through = rows.through(keys, values, there.rows)
            of_keys += _turned(through) @ rows.query
            of_values += _turned(power) @ rows.dy
        dk[call.layout.index(there, of_key.width)] = call.layout.block(of_keys)
        dv[call.layout.index(there, of_value.width)] = call.layout.block(of_values)

    facts.each(call.blocks(of_query, of_key), by_rows)
    facts.each(call.blocks(of_key, of_query), by_columns)


def _turned(matrices: AnyArray) -> AnyArray:
    return matrices.swapaxes(-1, -2)


def _pieces(first: int, last: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, last)) for start in range(first, last, step))


def _part(shape: Shape, place: HeadRows, columns: slice) -> tuple[slice, ...]:
    """Where the part of a mask or bias for some scores is; an extent of 1 belongs to all of them.

    It has two dimensions, or four: with items and heads in front.
    """
    pairs = zip(reversed(shape), (columns, *reversed(place)), strict=False)
    own = [slice(0, 1) if extent == 1 else piece for extent, piece in pairs]
    return tuple(reversed(own))
