"""A thread that looks after things, again and again."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable

from npucall_server.telemetry.log import Log


class Watch:
    """Calls functions every so many seconds. Logs what a function raises, and goes on."""

    def __init__(self, seconds: float, log: Log, *looks: Callable[[], object]) -> None:
        self._seconds, self._log, self._looks = seconds, log, looks
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="npucall-watch", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def look(self) -> None:
        """Calls each function once."""
        for look in self._looks:
            try:
                look()
            except Exception:  # noqa: BLE001  # the next one shall look all the same
                self._log.event("bug", traceback=traceback.format_exc())

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._seconds):
            self.look()
