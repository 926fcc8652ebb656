"""The slopes of the rectifier with a learned slope: one, or one for each channel."""

from __future__ import annotations

from math import prod

import numpy as np

from npucall.declare import Facts, rules
from npucall.declare.draft import Draft
from npucall.dtypes import AnyArray, Array
from npucall.operators._numerics import numbered
from npucall.tensors import Shape


def channels(draft: Draft) -> int:
    """The second extent of self; 1 if it has none."""
    return (*draft.shape("self")[1:2], 1)[0]


one_or_each_channel = rules.requires(
    "one element, or one for each channel of self",
    "weight",
    "self",
    holds=lambda draft: prod(draft.shape("weight")) in (1, channels(draft)),
    found=lambda draft: f"{draft.shape('weight')} for self {draft.shape('self')}",
)


def channels_of(weight: Array, index: tuple[slice, ...]) -> slice:
    """The numbers of the slopes that a block of self has."""
    return slice(0, 1) if prod(weight.shape) == 1 else index[1]


def slopes_of(facts: Facts, weight: Array, shape: Shape, index: tuple[slice, ...]) -> AnyArray:
    """The slopes of a block of self, of that shape, with which they broadcast."""
    own = channels_of(weight, index)
    slopes = numbered(facts, weight, np.arange(own.start, own.stop))
    return slopes.reshape(() if prod(weight.shape) == 1 else (-1, *[1] * (len(shape) - 2)))
