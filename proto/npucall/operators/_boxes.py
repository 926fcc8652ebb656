"""Boxes of planes: which cells each is a sum of.

Along one axis a box is cut into parts, each of which has samples, evenly apart. A sample between
two cells is a sum of both. So a part is the mean of weighted cells, and a box has such sums for
each axis.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from npucall.declare import Facts
from npucall.dtypes import AnyArray, Array
from npucall.errors import PARAM_INVALID, ArgumentError
from npucall.operators._interpolation import Weighted


class Boxes(NamedTuple):
    """The boxes of a call, and how they are pooled."""

    facts: Facts
    boxes: Array
    pooled: tuple[int, int]
    scale: float
    ratio: int
    aligned: bool

    def read(self, some: slice) -> AnyArray:
        """Some boxes, which are checked."""
        found = self.facts.read(self.boxes, (some, slice(None))).astype(np.float64)
        check_boxes(found, self.facts.shapes["planes"][0])
        return found

    def sums(self, box: AnyArray) -> tuple[Weighted, Weighted]:
        """What a box adds up along both axes."""
        corners = box[1:] * self.scale - (0.5 if self.aligned else 0)
        sizes = zip(self.facts.shapes["planes"][2:], self.pooled, strict=True)
        y, x = (
            self._axis(size, cells, corners[place], corners[place + 2])
            for place, (size, cells) in zip((1, 0), sizes, strict=True)
        )
        return y, x

    def _axis(self, size: int, cells: int, start: float, end: float) -> Weighted:
        """The means of samples along one axis; none is taken a cell or more beyond it."""
        extent = end - start if self.aligned else max(end - start, 1.0)
        samples = self.ratio or max(ceil(extent / cells), 0)
        step = extent / cells / max(samples, 1)
        first, last = 0, cells * samples
        if step > 0:  # of a long box only those that count
            first = min(max(floor((-1 - start) / step) - 1, 0), last)
            last = max(min(ceil((size - start) / step) + 2, last), first)
        numbers = np.arange(first, last)
        places = start + (numbers + 0.5) * step
        inside = (places >= -1) & (places <= size)
        places = np.clip(places[inside], 0, size - 1)
        low = np.minimum(places.astype(np.int64), max(size - 2, 0))
        high = np.minimum(low + 1, size - 1)
        rest = places - low
        weights = np.stack([1 - rest, rest], 1) / max(samples, 1)
        rows = numbers[inside] // max(samples, 1)
        starts = 2 * np.searchsorted(rows, np.arange(cells + 1))
        return Weighted(np.stack([low, high], 1).reshape(-1), weights.reshape(-1), starts)


def of_one(facts: Facts, array: Array, number: int) -> Callable[[tuple[slice, ...]], AnyArray]:
    """Reads blocks of one image, or of one box, as if there were no other."""
    one = slice(number, number + 1)
    return lambda index: facts.read(array, (one, *index[1:]))


def check_boxes(boxes: AnyArray, images: int) -> None:
    """Raises ArgumentError for a box of no image, or with a corner that is no place."""
    wrong = ~np.isfinite(boxes).all(1) | (boxes[:, 0] < 0) | (boxes[:, 0] >= images)
    if wrong.any():
        raise ArgumentError(
            f"boxes: expected finite numbers, the first an image from 0 to {images - 1}, "
            f"found {boxes[wrong][0].tolist()}",
            parameter="boxes",
            aclnn_status=PARAM_INVALID,
        )
