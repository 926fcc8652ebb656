"""To ask again for a moment before the kernel is told to wake this thread, which takes longer."""

from __future__ import annotations

import os
from time import perf_counter

_SECONDS = 1e-4
"""So long a thread asks: about what the kernel takes to let two threads sleep and to wake them."""
_MOST_SKIPPED = 512
_HAS_CORES = (os.cpu_count() or 1) > 1
"""Else what is awaited has to have the core."""


class Moment:
    """Learns whether it is worth it, as it is where nine of ten times something comes in time.

    After a time in vain it waits without asking for a while, which is longer each time.
    """

    __slots__ = ("_misses", "_skips")

    def __init__(self) -> None:
        self._misses = self._skips = 0 if _HAS_CORES else _MOST_SKIPPED

    def begin(self) -> float:
        """Until when to ask, on the clock of ``perf_counter``; 0: not at all, but wait at once."""
        if self._skips:
            self._skips -= 1
            return 0.0
        return perf_counter() + _SECONDS

    def end(self, *, in_vain: bool) -> None:
        """It was asked, and nothing, or something, has come."""
        if in_vain:
            self._misses = self._skips = min(2 * self._misses + 8, _MOST_SKIPPED)
        elif self._misses:
            self._misses -= 2
