"""Calls of a pipeline that may have ended a server: each is sent again as a call of its own."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.wire.messages import Response
    from npucall_client.arguments import BoundCall
    from npucall_client.remote.losses import Losses
    from npucall_client.remote.writing import SentCall

_AT_A_TIME = 8


class Again(Protocol):
    """Sends a call of which something was lost."""

    def again(self, call: BoundCall, timeout: float, request_id: str, losses: Losses) -> Response:
        """Raises NpucallError."""


class OwnCalls:
    """Such calls, a few at a time. ``finish`` hears how each of them ended."""

    def __init__(
        self, connection: Again, finish: Callable[[SentCall, Response | Exception], object]
    ) -> None:
        self._connection, self._finish = connection, finish
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def send(self, call: SentCall) -> None:
        """Sends a call."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_AT_A_TIME, "npucall-repeats")
            self._threads.submit(self._run, call)

    def close(self) -> None:
        """Waits until all have ended."""
        with self._lock:
            threads = self._threads
        if threads is not None:
            threads.shutdown()

    def _run(self, sent: SentCall) -> None:
        if sent.is_over:
            return
        left = max(0.0, sent.ends - time.monotonic())
        try:
            answer = self._connection.again(sent.call, left, sent.request_id, sent.losses)
        except Exception as error:  # noqa: BLE001  # the call's own
            self._finish(sent, error)
        else:
            self._finish(sent, answer)
