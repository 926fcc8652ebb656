"""``npucall.v1.OperatorService``: ExecuteStream, all of its streams."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from npucall.errors import QueueFullError
from npucall_server.executor import going_down
from npucall_server.services.streams.stream import Stream
from npucall_server.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator

    import grpc

    from npucall_server.execution import Executions
    from npucall_server.handling import Handling, StreamMethod
    from npucall_server.settings import ServerSettings

_RETRY_SECONDS = 1.0


class StreamService:
    """Opens streams, whose calls run in threads that all of them share."""

    def __init__(self, executions: Executions, settings: ServerSettings) -> None:
        self._executions = executions
        self._settings = settings
        self._streams: set[Stream] = set()
        self._lock = threading.Lock()
        self._draining = False
        # As many as calls are admitted, so that none waits for a thread.
        most = settings.queue_length + executions.executor.device.lanes
        self._threads = Threads(most, "npucall-stream-call")

    def methods(self) -> dict[str, StreamMethod]:
        """The methods by the names that the proto gives them."""
        return {"ExecuteStream": self.execute_stream}

    def execute_stream(
        self, frames: Iterator[bytes], context: grpc.ServicerContext, handling: Handling
    ) -> Iterator[bytes]:
        """One stream, from its opening to its end."""
        stream = Stream(frames, context, self._executions, handling, self._threads, self._settings)
        self._open(stream)
        try:
            yield from stream.answers()
        finally:
            stream.close()
            with self._lock:
                self._streams.discard(stream)

    def drain(self) -> None:
        """From now on a stream ends as soon as none of its calls is left."""
        with self._lock:
            self._draining = True
            streams = list(self._streams)
        for stream in streams:
            stream.drain()

    def _open(self, stream: Stream) -> None:
        limit = self._settings.max_streams
        with self._lock:
            if self._draining:
                raise going_down()
            if len(self._streams) >= limit:
                raise QueueFullError(
                    f"server: expected a free stream, found that as many are open as max_streams = "
                    f"{limit} allows; repeat the call later",
                    retry_after=_RETRY_SECONDS,
                    limit=str(limit),
                    setting="max_streams",
                )
            self._streams.add(stream)
