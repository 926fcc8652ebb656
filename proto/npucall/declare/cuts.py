"""How a shape is cut into blocks, which are computed one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from npucall.tensors import Shape

BLOCK = 3 << 15
"""Most elements of a block: a few arrays of float32 of this length stay near the core."""


_SHARES = 8


def shared_block(elements: int, most: int) -> int:
    """Most elements of a block of a call of so many, at the ``most`` so many blocks as one.

    Threads that meet seldom are not in each other's way: a step that takes 10 us is over before one
    that waits for the interpreter has woken up. Small calls still have a block for each thread.
    """
    return min(max(elements // _SHARES, BLOCK), most * BLOCK)


def cut(shape: Shape, limit: int) -> Sequence[tuple[slice, ...]]:
    """Cuts a shape into blocks of at most ``limit`` elements, in row-major order."""
    return _Cuts(shape, limit)


class _Cuts(Sequence["tuple[slice, ...]"]):
    """The blocks of a shape. None is made before it is asked for: there may be millions."""

    def __init__(self, shape: Shape, limit: int) -> None:
        axis, inner = len(shape), 1
        while axis and inner * shape[axis - 1] <= limit:
            axis -= 1
            inner *= shape[axis]
        self._rest = tuple(slice(0, extent) for extent in shape[axis:])
        self._cut = shape[axis - 1 : axis]
        """The extent that is cut into pieces; none where everything is one block."""
        self._outer = shape[: axis - 1] if axis else ()
        self._step = max(limit // max(inner, 1), 1)
        self._pieces = -(-self._cut[0] // self._step) if self._cut else 1
        if self._cut and inner > 1:  # pieces of one length, so that threads end together
            self._step = max(-(-self._cut[0] // max(self._pieces, 1)), 1)
        self._count = 0 if 0 in shape else prod(self._outer) * self._pieces

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        row, piece = divmod(number, self._pieces)
        outer = []
        for extent in reversed(self._outer):
            row, place = divmod(row, extent)
            outer.append(slice(place, place + 1))
        start = piece * self._step
        pieces = (slice(start, min(start + self._step, extent)) for extent in self._cut)
        return (*reversed(outer), *pieces, *self._rest)
