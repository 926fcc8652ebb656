"""How many calls a client may send once more: a bucket, so that it does not flood a broken pool.

No I/O, and no waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_FEWEST = 10
"""Repeats that a client may send at once after a while without any."""
_SHARE = 0.2
"""Repeats that each answered call adds."""
_MOST = 1000
_A_SECOND = 10.0
"""Repeats that each second adds, until the bucket has ``_FEWEST``."""


class Bucket:
    """A bucket of repeats. A call that finds it empty waits; none is refused. Safe for threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._left: float = _FEWEST
        self._at = clock()
        self._lock = threading.Lock()

    def answered(self) -> None:
        """A call was answered."""
        with self._lock:
            self._left = min(_MOST, self._left + _SHARE)

    def take(self) -> float:
        """Takes a repeat; returns the seconds after which it may be sent."""
        with self._lock:
            now = self._clock()
            more = (now - self._at) * _A_SECOND
            self._at = now
            if self._left < _FEWEST:
                self._left = min(_FEWEST, self._left + more)
            self._left -= 1
            return max(0.0, -self._left / _A_SECOND)
