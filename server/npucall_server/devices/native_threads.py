"""Threads as the system has them: they end later than Python says.

Before Python 3.13, ``Thread.join`` returns as soon as a thread has run its last Python code. Only
after that the C library destroys what libraries keep for the thread (thread_local of C++).
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

_START_TIME = 19
"""Position of the start time in ``stat`` of /proc, counted after the name."""
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.02


class NativeThread:
    """The thread that makes this object. Without /proc it counts as ended at once."""

    def __init__(self) -> None:
        self._stat = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
        self._began = _start_time(self._stat)

    @property
    def has_ended(self) -> bool:
        """Whether the thread has ended. Another thread may have its number by then."""
        return self._began is None or _start_time(self._stat) != self._began


class EndingThreads:
    """Threads that have been told to end."""

    def __init__(self) -> None:
        self._threads: list[NativeThread] = []
        self._lock = threading.Lock()

    def add(self, thread: NativeThread) -> None:
        """Adds a thread, and forgets those that have ended by now."""
        with self._lock:
            self._threads = [each for each in self._threads if not each.has_ended]
            self._threads.append(thread)

    def wait(self, seconds: float) -> int:
        """Waits until all have ended, ``seconds`` at the most; answers how many have not."""
        end, pause = time.monotonic() + seconds, _SHORTEST_PAUSE
        left = self._threads
        while left := [thread for thread in left if not thread.has_ended]:
            if time.monotonic() >= end:
                break
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return len(left)


def _start_time(stat: Path) -> str | None:
    """When a thread began, in ticks since the system started; None if there is no such thread."""
    with suppress(OSError):
        return stat.read_text().rpartition(")")[2].split()[_START_TIME]
    return None
