"""Messages that differ in nothing but the bytes of some fields: read once, compared afterwards.

Who calls an operator calls it again, with other numbers in tensors of the same sizes. Comparing all
bytes but those numbers takes a fifth of the time that reading the message takes, and is as safe:
its fields are where they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

K = TypeVar("K")
Span: TypeAlias = tuple[int, int]
"""Where something is in a message: its start and its end."""

_KEPT = 256
_LONGEST = 1 << 14
"""Bytes of a message besides its free fields up to which its shape is kept."""


class Shape(Generic[K]):
    """What messages of one length have in common."""

    def __init__(self, message: bytes, kept: K, free: Sequence[Span]) -> None:
        starts = [0, *(end for _, end in free)]
        ends = [*(start for start, _ in free), len(message)]
        self._fixed = [(s, message[s:e]) for s, e in zip(starts, ends, strict=True) if s < e]
        self.kept = kept
        """What was read of the first one, and is the same in all."""
        self.free = free
        """Where the fields are whose bytes differ, in the order in which they stand there."""

    def fits(self, message: bytes) -> bool:
        """Whether a message of this length has this shape."""
        for start, expected in self._fixed:  # noqa: SIM110  # half the time that all() takes
            if not message.startswith(expected, start):
                return False
        return True


class Shapes(Generic[K]):
    """The shapes of messages that came before: the last one of each length."""

    def __init__(self) -> None:
        self._by_length: dict[int, Shape[K]] = {}

    def of(self, message: bytes) -> Shape[K] | None:
        """The shape of a message if one like it came before."""
        shape = self._by_length.get(len(message))
        return shape if shape is not None and shape.fits(message) else None

    def learn(self, message: bytes, kept: K, free: Sequence[Span]) -> None:
        """Keeps the shape of a message, unless it is long."""
        if len(message) - sum(end - start for start, end in free) > _LONGEST:
            return
        if len(self._by_length) >= _KEPT:
            self._by_length.clear()
        self._by_length[len(message)] = Shape(message, kept, free)
