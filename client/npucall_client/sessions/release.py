"""Handles whose tensors Python has collected; they are released together, in one call."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

_MANY_HANDLES = 512
_MANY_BYTES = 64 << 20


class Collected:
    """The handles to release with the next batch.

    ``add`` takes no lock, since the collector may call it at any point of any thread.
    """

    def __init__(self) -> None:
        self._handles: deque[_Handle] = deque()

    def add(self, handle: bytes, nbytes: int) -> None:
        """Adds a handle whose tensor was collected."""
        self._handles.append(_Handle(handle, nbytes))

    def is_much(self) -> bool:
        """Whether it is so much that it is worth a call of its own."""
        if not self._handles:
            return False
        if len(self._handles) >= _MANY_HANDLES:
            return True
        return sum(each.nbytes for each in list(self._handles)) >= _MANY_BYTES

    def take(self) -> list[bytes]:
        """Removes all handles, and returns them."""
        taken = []
        while self._handles:
            try:
                taken.append(self._handles.popleft().id)
            except IndexError:  # another thread took the last one
                break
        return taken


class _Handle(NamedTuple):
    id: bytes
    nbytes: int
