"""A stream for each session of a pipeline's calls; the client names the session to open it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.tensors import Home
    from npucall_client.sending.stream import CallStream
    from npucall_client.sending.writer import SentCall


class _Sent(NamedTuple):
    stream: CallStream
    call: SentCall


class StreamsOfSessions:
    """Calls of a pipeline. ``opened``: makes the stream of a session, or of calls without one."""

    def __init__(self, opened: Callable[[Home | None], CallStream]) -> None:
        self._opened = opened
        self._streams: dict[Home | None, CallStream] = {}
        self._closed = False
        self._lock = threading.Lock()

    async def send(
        self,
        call: BoundCall,
        timeout: float,
        request_id: str,
        done: Callable[[Response | Exception], object],
    ) -> _Sent:
        """Sends a call on the stream of its session. Raises CancelledError once this is closed."""
        with self._lock:
            if self._closed:
                raise CancelledError("the pipeline is closed; client.pipeline() opens another one")
            stream = self._streams.get(call.home)
            if stream is None:
                stream = self._streams[call.home] = self._opened(call.home)
        return _Sent(stream, await stream.send(call, timeout, request_id, done))

    def cancel(self, call: _Sent) -> None:
        """Ends a call; the server hears of it."""
        call.stream.cancel(call.call)

    async def close(self) -> None:
        """Waits until every call has ended."""
        with self._lock:
            self._closed = True
            streams = list(self._streams.values())
        for stream in streams:
            await stream.close()
