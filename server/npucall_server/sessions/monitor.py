"""Waits for another thread while the caller still waits too."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from npucall.errors import DeadlineError
from npucall_server.access.callers import Waiting, went_away


class Monitor:
    """A lock, and threads that wait for changes under it. They do not hold it while they wait."""

    def __init__(self, call_timeout: float) -> None:
        self._call_timeout = call_timeout
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        self._changed.acquire()

    def __exit__(self, *raised: object) -> None:
        self._changed.release()

    def notify(self) -> None:
        """Something has changed; called with the lock."""
        self._changed.notify_all()

    def wait_until(self, done: Callable[[], bool], caller: Waiting) -> None:
        """Waits, without the lock held before. Raises DeadlineError and CancelledError."""
        with self._changed:
            if done():
                return
        caller.add_callback(self._wake)
        ends = time.monotonic() + self._seconds(caller)
        with self._changed:
            while not done():
                left = ends - time.monotonic()
                self._check(caller, left)
                self._changed.wait(left)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _seconds(self, caller: Waiting) -> float:
        remaining = caller.time_remaining()
        return self._call_timeout if remaining is None else min(remaining, self._call_timeout)

    def _check(self, caller: Waiting, left: float) -> None:
        """Raises if the caller no longer waits, or has waited too long."""
        if not caller.is_active():
            raise went_away()
        if left > 0:
            return
        remaining = caller.time_remaining()
        if remaining is not None and remaining <= 0:
            raise DeadlineError(
                "the deadline of the call ended while another call filled a handle that it reads"
            )
        raise DeadlineError(
            "the call waited for a handle for longer than the server allows (call_timeout = "
            f"{self._call_timeout:g} s)",
            limit=f"{self._call_timeout:g}",
            setting="call_timeout",
        )
