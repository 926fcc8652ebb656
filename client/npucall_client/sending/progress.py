"""Tells a caller how much of what it sends and gets has travelled."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from npucall_client.calls.options import Progress


class LoopProgress:
    """A caller's function that is called on this loop alone, in the order of the reports.

    What it raises is raised to who reports next, or looks.
    """

    def __init__(self, tell: Progress) -> None:
        self._tell, self._loop = tell, asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._reports: deque[tuple[int, ...]] = deque()
        self._failures: list[Exception] = []

    def __call__(self, *numbers: int) -> None:
        """Reports, from any thread."""
        self._reports.append(numbers)
        if threading.get_ident() == self._thread:
            self._tell_all()
        else:
            self._loop.call_soon_threadsafe(self._tell_all)
        self._raise()

    def check(self) -> None:
        """On the loop: tells what was reported by now. Raises what that raised."""
        self._tell_all()
        self._raise()

    def _raise(self) -> None:
        if self._failures:
            raise self._failures.pop()

    def _tell_all(self) -> None:
        while self._reports:
            try:
                self._tell(*self._reports.popleft())
            except Exception as error:  # noqa: BLE001  # raised to who reports next, or looks
                self._failures.append(error)


def on_loop(progress: Progress | None) -> LoopProgress | None:
    """The same function, called on this loop."""
    return None if progress is None else LoopProgress(progress)


class Telling:
    """The progress of one attempt. If the caller's function raises, the call ends.

    ``tell``: called with bytes sent, bytes received, and bytes known to travel in all.
    """

    def __init__(self, tell: Callable[[int, int, int], object] | None, request_bytes: int) -> None:
        self._tell = tell
        self._request_bytes = request_bytes
        self._sent = self._received = self._reply_bytes = 0
        self.broken: Exception | None = None
        self._lock = threading.Lock()
        """Outputs may come while inputs are sent; the lock lets one at a time call the function."""

    def sent(self, size: int) -> None:
        """Called in gRPC's thread, which must not raise. Frames are little more than their data."""
        self._sent = min(self._sent + size, self._request_bytes)
        try:
            self._report()
        except Exception as error:  # noqa: BLE001  # raised again in the caller's thread
            self.broken = error

    def received(self, received: int, of: int) -> None:
        """Called in the caller's thread."""
        self._received, self._reply_bytes = received, of
        self.check()
        self._report()

    def check(self) -> None:
        """In the caller's thread: raises what the caller's function raised in gRPC's thread."""
        if isinstance(self._tell, LoopProgress):
            self._tell.check()
        if self.broken is not None:
            raise self.broken

    def _report(self) -> None:
        if self._tell is not None:
            with self._lock:
                self._tell(self._sent, self._received, self._request_bytes + self._reply_bytes)
