"""Tells a caller how much of what it sends and gets has travelled."""

from __future__ import annotations

import threading
from collections.abc import Callable


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
        """Raises the error that the caller's function raised in gRPC's thread."""
        if self.broken is not None:
            raise self.broken

    def _report(self) -> None:
        if self._tell is not None:
            with self._lock:
                self._tell(self._sent, self._received, self._request_bytes + self._reply_bytes)
