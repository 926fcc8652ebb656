"""Normalisation of channels: what BatchNorm and its gradient check, and how they see channels.

A channel of (N, C, ...) is a row: all its numbers, of all items. Blocks of channels are copied so
that rows lie one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from npucall.declare import Facts, rules
from npucall.declare.cuts import BLOCK, cut, shared_block
from npucall.declare.draft import Draft
from npucall.dtypes import FLOAT, AnyArray, Array
from npucall.products import ASCEND_950
from npucall.tensors import Format, Shape

FIRST = (Format.ND, Format.NCL, Format.NCHW, Format.NCDHW)
"""Formats whose second dimension is the channel."""

_MOST = 2
"""Blocks that are computed as one."""
_LONG = 4096
"""Numbers that items have of some channels: from so many on they are read one by one, and copied
once.
"""


def channels_of(name: str) -> rules.Rule:
    """Finds ``channels``, the shape of what has one element for each."""
    return rules.shape_of(name, into="channels", make=lambda draft: draft.shape(name)[1:2])


CHANNELS = channels_of("input")


def of_channels(*names: str) -> tuple[rules.Rule, ...]:
    """Each has one element for each channel."""
    return tuple(rules.same_shape(name, "channels", "one for each channel") for name in names)


def training(draft: Draft) -> bool:
    """Whether the statistics are those of the batch."""
    return bool(draft.attribute("training"))


def held(*, backward: bool) -> Callable[[Facts, Mapping[str, Any]], int]:
    """Bytes of a channel that is longer than a block, and of a few numbers for each."""

    def holds(facts: Facts, _: Mapping[str, Any]) -> int:
        shape = facts.shapes["input"]
        channels = shape[1]
        length = prod(shape) // max(channels, 1)
        of_channel = (24 if backward else 16) * length if length > BLOCK else 0
        return of_channel + (2 if backward else 4) * channels * FLOAT.itemsize

    return holds


def blocks(shape: Shape) -> list[slice]:
    """Blocks of channels, of about as many numbers as a block should have."""
    limit = shared_block(prod(shape), _MOST)
    step = max(limit // max(prod(shape) // max(shape[1], 1), 1), 1)
    return [channels for (channels,) in cut(shape[1:2], step)]


def read(facts: Facts, array: Array, channels: slice) -> AnyArray:
    """The numbers of some channels: a row for each, which belongs to the caller."""
    items, rest = array.shape[0], array.shape[2:]
    rows = np.empty((channels.stop - channels.start, items, *rest), facts.dtype)
    if rows[:, :1].size < _LONG:
        rows[...] = np.moveaxis(facts.read(array, (slice(None), channels)), 1, 0)
        return rows.reshape(len(rows), -1)
    for item in range(items):
        rows[:, item] = facts.read(array, (item, channels))
    return rows.reshape(len(rows), -1)


def write(out: AnyArray, rows: AnyArray, channels: slice, shape: Shape) -> None:
    """Writes rows to where some channels of an output stand."""
    apart = rows.reshape(len(rows), shape[0], *shape[2:])
    out[(slice(None), channels)] = np.moveaxis(apart, 0, 1)


def numbers(
    facts: Facts, arrays: Iterable[tuple[Array | None, float]], channels: slice
) -> list[AnyArray]:
    """A number for each of some channels, (channels, 1), of tensors; another one of an absent."""
    count = channels.stop - channels.start
    return [
        np.full((count, 1), none, facts.dtype)
        if array is None
        else np.asarray(facts.read(array, channels), facts.dtype).reshape(count, 1)
        for array, none in arrays
    ]


def inverse(facts: Facts, var: AnyArray, eps: float, *, saved: bool) -> AnyArray:
    """1 / the deviation. What is saved on Ascend 950 is that itself."""
    if saved and facts.product is ASCEND_950:
        return var
    found: AnyArray = 1 / np.sqrt(var + facts.dtype.type(eps))
    return found
