"""Gives kept memory back to the kernel when no call comes for a while, or a call needs room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npucall import memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.scheduling.executor import Executor


_LARGE = 16
"""For calls that need at least 1/16 of the limit, the memory of the process is looked at."""


class KeptMemory:
    """Freed memory that the process keeps for the next calls, within ``limit``.

    Kept memory and the memory of calls together are at most ``limit`` more than the process had at
    its start. If a call needs more, kept memory is given back first.
    """

    def __init__(
        self,
        limit: int,
        give_back: Callable[[], object] = memory.give_back,
        resident: Callable[[], int] = memory.resident_bytes,
    ) -> None:
        self.large = limit // _LARGE
        """From so many bytes on ``make_room`` looks; for less it does nothing."""
        self._most = resident() + limit
        self._give_back, self._resident = give_back, resident

    def make_room(self, size: int) -> None:
        """To be called before a call takes so many bytes."""
        if size >= self.large and self._resident() + size > self._most:
            self._give_back()


class IdleMemory:
    """Watches an executor. Gives kept memory back once after each time that it was busy."""

    def __init__(
        self, executor: Executor, give_back: Callable[[], object] = memory.give_back
    ) -> None:
        self._executor, self._give_back = executor, give_back
        self._seen, self._kept = 0, False

    def look(self) -> None:
        """Gives it back if no call has come since the last look. To be called now and then."""
        admitted = self._executor.calls_admitted
        self._kept = self._kept or admitted != self._seen
        if self._kept and admitted == self._seen and not self._executor.calls_in_flight:
            self._give_back()
            self._kept = False
        self._seen = admitted
