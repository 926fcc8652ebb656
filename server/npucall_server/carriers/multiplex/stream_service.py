"""``npucall.v1.OperatorService``: ExecuteStream, all of its streams."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator

from npucall.errors import QueueFullError
from npucall_server import retries
from npucall_server.accounts.budget import Budget
from npucall_server.accounts.ledger import Ledger
from npucall_server.accounts.quotas import quota_of
from npucall_server.calls.beginning import Executions
from npucall_server.carriers.door import Door
from npucall_server.carriers.multiplex.call import Streaming
from npucall_server.carriers.multiplex.stream import Stream
from npucall_server.carriers.peers import Peers, Visitor
from npucall_server.carriers.threads import Threads
from npucall_server.scheduling.executor import going_down
from npucall_server.settings.server import ServerSettings
from npucall_server.telemetry.log import Record


class StreamService:
    """Opens streams, whose calls run in threads that all of them share."""

    def __init__(
        self,
        executions: Executions,
        settings: ServerSettings,
        budget: Budget,
        door: Door,
        peers: Peers,
    ) -> None:
        self.places = Ledger(
            budget.max_streams,
            lambda *_: _too_many(budget.max_streams),
            quota_of(executions.executor.tenants, "streams"),
        )
        self._streams: set[Stream] = set()
        self._lock = threading.Lock()
        self._draining = False
        # As many as calls are admitted, so that none waits for a thread.
        most = settings.queue_length + executions.executor.device.lanes
        self.threads = Threads(most, "npucall-stream-call")
        self._common = Streaming(executions, door, peers, self.threads, budget.chunk_bytes)

    def execute_stream(
        self, messages: Iterator[bytes], _: Record, caller: Visitor
    ) -> Generator[bytes, None, None]:
        """One stream, from its opening to its end."""
        if self._draining:
            raise going_down()
        place = self.places.take(caller, 1, caller.cancel)
        try:
            yield from self._answers(Stream(messages, caller, self._common, place))
        finally:
            place.give_back()

    def look(self) -> None:
        """Ends streams of callers whose credential is no longer good.

        Has to be called every second.
        """
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            stream.look()

    def drain(self) -> None:
        """From now on a stream ends as soon as none of its calls is left."""
        with self._lock:
            self._draining = True
            streams = list(self._streams)
        for stream in streams:
            stream.drain()

    def _answers(self, stream: Stream) -> Iterator[bytes]:
        with self._lock:
            if self._draining:
                raise going_down()
            self._streams.add(stream)
        try:
            yield from stream.answers()
        finally:
            stream.close()
            with self._lock:
                self._streams.discard(stream)


def _too_many(limit: int) -> QueueFullError:
    sentence = f"all streams of the server are in use (max_streams = {limit})"
    return retries.refusal(
        QueueFullError, sentence, retries.STREAM, limit=limit, setting="max_streams"
    )
