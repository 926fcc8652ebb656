"""The caller of one call of a stream."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.carriers.peers import Visitor


class StreamCaller:
    """Who waits for one call of a stream: until it cancels the call, or the stream ends."""

    def __init__(self, stream: Visitor, request_id: str, seconds: float | None) -> None:
        self.peer, self.metadata = stream.peer, stream.metadata
        self.identity, self.owner = stream.identity, stream.owner
        self.request_id = request_id
        limits = (stream.time_remaining(), seconds)
        limit = min((limit for limit in limits if limit is not None), default=None)
        self._ends = None if limit is None else time.monotonic() + limit
        self._callbacks: list[Callable[[], None]] | None = []
        """None once it no longer waits."""
        self._lock = threading.Lock()

    def time_remaining(self) -> float | None:
        """Until the deadline of the call or of its stream, whichever comes first."""
        return None if self._ends is None else self._ends - time.monotonic()

    def is_active(self) -> bool:
        """Whether the call is not cancelled and its stream has not ended."""
        return self._callbacks is not None

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when it cancels."""
        with self._lock:
            if self._callbacks is None:
                return False
            self._callbacks.append(callback)
            return True

    def cancel(self) -> None:
        """The caller no longer waits."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()
