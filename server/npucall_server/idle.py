"""Gives kept memory back to the kernel when no call has come for a while."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from npucall import memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.executor import Executor


class IdleMemory:
    """Watches an executor; gives back once after each time that it was busy."""

    def __init__(
        self,
        executor: Executor,
        seconds: float,
        give_back: Callable[[], object] = memory.give_back,
    ) -> None:
        self._executor, self._seconds, self._give_back = executor, seconds, give_back
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="npucall-idle", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        seen, kept = 0, False
        while not self._stopped.wait(self._seconds):
            admitted = self._executor.calls_admitted
            kept = kept or admitted != seen
            if kept and admitted == seen and not self._executor.calls_in_flight:
                self._give_back()
                kept = False
            seen = admitted
