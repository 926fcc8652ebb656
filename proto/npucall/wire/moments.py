"""To ask again for a moment before the kernel is told to wake this thread, which takes longer."""

from __future__ import annotations

import os
from time import perf_counter
from typing import Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_SECONDS = 1e-4
"""So long a thread asks: about what the kernel takes to let two threads sleep and to wake them."""
_MOST_SKIPPED = 512
_HAS_CORES = (os.cpu_count() or 1) > 1
"""Else what is awaited has to have the core."""


class Getter(Protocol[T_co]):
    """Gets something."""

    def __call__(self, *, at_once: bool) -> T_co | None:
        """Waits for it; ``at_once``: not at all, and None if there is nothing yet."""


class Moment:
    """Learns whether it is worth it, as it is where nine of ten times something comes in time.

    After a time in vain it waits without asking for a while, which is longer each time.
    """

    __slots__ = ("_misses", "_skips")

    def __init__(self) -> None:
        self._misses = self._skips = 0 if _HAS_CORES else _MOST_SKIPPED

    def wait(self, get: Getter[T]) -> T:
        """What there is to get, once there is something."""
        if self._skips:
            self._skips -= 1
        else:
            ends = perf_counter() + _SECONDS
            while perf_counter() < ends:
                if (found := get(at_once=True)) is not None:
                    if self._misses:
                        self._misses -= 2
                    return found
            self._misses = self._skips = min(2 * self._misses + 8, _MOST_SKIPPED)
        found = get(at_once=False)
        assert found is not None  # noqa: S101  # it has waited
        return found
