"""``npucall.v1.OperatorService``: ExecuteStream, the calls of all streams."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from npucall.errors import MessageError, QueueFullError
from npucall.wire.frames import INLINE_BYTES, Begin, Chunk, join_chunk, join_end, join_reply
from npucall.wire.messages import Region, join_response, split_request
from npucall_server.executor import going_down
from npucall_server.services.streams.arrivals import Arrivals
from npucall_server.services.streams.stream import Stream
from npucall_server.shared.places import is_placed
from npucall_server.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import grpc

    from npucall.declare.prepare import Prepared
    from npucall.wire.messages import Place, Request
    from npucall_server.executor import Executor, Result
    from npucall_server.handling import Handling, StreamMethod
    from npucall_server.services.operators import OperatorService
    from npucall_server.services.streams.call import StreamCall
    from npucall_server.settings import ServerSettings

_RETRY_SECONDS = 1.0


class StreamService:
    """Opens streams and runs their calls, in threads that all of them share."""

    def __init__(
        self, executor: Executor, operators: OperatorService, settings: ServerSettings
    ) -> None:
        self._executor = executor
        self._operators = operators
        self._settings = settings
        self._streams: set[Stream] = set()
        self._lock = threading.Lock()
        self._draining = False
        # As many as calls are admitted, so that none waits for a thread.
        most = settings.queue_length + executor.device.lanes
        self._threads = Threads(most, "npucall-stream-call")

    def methods(self) -> dict[str, StreamMethod]:
        """The methods by the names that the proto gives them."""
        return {"ExecuteStream": self.execute_stream}

    def execute_stream(
        self, frames: Iterator[bytes], context: grpc.ServicerContext, handling: Handling
    ) -> Iterator[bytes]:
        """One stream, from its opening to its end."""
        stream = Stream(self, frames, context, handling, self._settings)
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

    def admit(self, call: StreamCall, begin: Begin) -> None:
        """Checks a call and makes room for it, before its bytes come. Raises what Execute does."""
        start = time.perf_counter_ns()
        record = call.record
        asked = split_request(begin.request)
        decoded = time.perf_counter_ns()
        record.decode_ns = decoded - start
        prepared = self._operators.prepared(asked.call, record)
        if begin.chunked:
            _check_nothing_but_the_call(asked)
        elif is_placed(asked):
            call.placed = self._operators.placed(prepared, asked)
        else:
            call.storages = list(asked.storage)  # type: ignore[arg-type]  # no regions
            prepared.storages(call.storages)
        record.check_ns = time.perf_counter_ns() - decoded
        self._executor.admit(prepared)
        call.prepared = prepared
        if begin.chunked:
            piecewise = self._executor.device.piecewise(prepared) is not None
            call.expect(prepared.stored_bytes, Arrivals(prepared) if piecewise else None)

    def start(self, stream: Stream, call: StreamCall) -> None:
        """Runs a call whose bytes have come, or arrive, in a thread of its own."""
        self._threads.submit(self._run, stream, call)

    def dismiss(self, call: StreamCall) -> None:
        """Gives the room of a call back."""
        if call.prepared is not None:
            self._executor.dismiss(call.prepared)

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

    def _run(self, stream: Stream, call: StreamCall) -> None:
        prepared = call.prepared
        try:
            assert prepared is not None  # noqa: S101  # admitted
            result = self._result(prepared, call)
            outputs = call.placed.replied(result.outputs) if call.placed else result.outputs
            reply, timings = self._operators.reply(prepared, result, call.record)
        except Exception as error:  # noqa: BLE001  # handling tells bugs from errors
            stream.fail(call, error)
        else:
            chunk_bytes = self._settings.chunk_bytes
            stream.answer(call, _frames(call.id, reply, timings, outputs, chunk_bytes))

    def _result(self, prepared: Prepared, call: StreamCall) -> Result:
        if call.arrivals is not None:
            return self._executor.run_pieces(prepared, call.arrivals, call)
        if call.placed is None:
            storages = prepared.storages(call.storages)
            return self._executor.run_admitted(prepared, storages, call)
        storages, targets = call.placed.storages(), call.placed.targets
        return self._executor.run_admitted(prepared, storages, call, targets)


def _check_nothing_but_the_call(asked: Request) -> None:
    found = len(asked.storage) + len(asked.output_places)
    if found:
        raise MessageError(
            f"begin: expected no storage and no place for an output where chunks follow, "
            f"found {found}"
        )


def _frames(
    call_id: int, reply: bytes, timings: bytes, outputs: Sequence[Place], chunk_bytes: int
) -> Iterator[bytes]:
    data = {index: output for index, output in enumerate(outputs) if not isinstance(output, Region)}
    if sum(map(len, data.values())) <= INLINE_BYTES:
        yield join_reply(call_id, join_response(reply, timings, outputs))
        return
    yield join_reply(call_id, join_response(reply, timings, ()))
    for index, output in data.items():  # an output in shared memory has no chunks
        view = memoryview(output)
        for start in range(0, len(view), chunk_bytes):
            chunk = Chunk(index, start, view[start : start + chunk_bytes])
            yield join_chunk(call_id, chunk)
    yield join_end(call_id)
