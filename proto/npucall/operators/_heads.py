"""Where heads stand in a tensor, and which columns their rows see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from npucall.dtypes import AnyArray
from npucall.tensors import Shape


class Sizes(NamedTuple):
    """Extents of a tensor of heads."""

    items: int
    heads: int
    rows: int
    width: int


class HeadRows(NamedTuple):
    """Rows of some heads."""

    items: slice
    heads: slice
    rows: slice


@dataclass(frozen=True)
class HeadLayout:
    """Where items, heads and rows of a tensor are: in the order of the letters B, N, S and D.

    ``H`` is heads and their elements in one dimension, ``T`` the rows of all items.
    """

    text: str

    def sizes(self, shape: Shape, heads: int) -> Sizes:
        """The sizes of a tensor, of so many heads if the layout has H."""
        extents = dict(zip(self.text, shape, strict=True))
        if "T" in extents:
            extents |= {"B": 1, "S": extents["T"]}
        if "H" in extents:
            extents |= {"N": heads, "D": extents["H"] // max(heads, 1)}
        return Sizes(*(extents[letter] for letter in "BNSD"))

    def heads(self, shape: Shape, width: int) -> int:
        """How many heads of that width a tensor has."""
        extents = dict(zip(self.text, shape, strict=True))
        return extents["N"] if "N" in extents else extents["H"] // max(width, 1)

    def index(self, place: HeadRows, width: int) -> tuple[slice, ...]:
        """Where rows of heads are."""
        elements = slice(place.heads.start * width, place.heads.stop * width)
        places = dict(zip("BNSDH", (*place, slice(None), elements), strict=True))
        return tuple(places[letter] for letter in self.text)

    def matrices(self, block: AnyArray, width: int) -> AnyArray:
        """What was read from there, as (B, N, S, D)."""
        if "H" in self.text:
            block = block.reshape(*block.shape[:2], -1, width)
        return block.transpose([self._four.index(letter) for letter in "BNSD"])

    def block(self, matrices: AnyArray) -> AnyArray:
        """Such matrices, as they are written there."""
        block = matrices.transpose(["BNSD".index(letter) for letter in self._four])
        return block.reshape(*block.shape[:2], -1) if "H" in self.text else block

    @property
    def _four(self) -> str:
        return self.text.replace("H", "ND")


LAYOUTS = {text: HeadLayout(text) for text in ("BSH", "SBH", "BSND", "BNSD")}
PACKED = HeadLayout("TND")


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
