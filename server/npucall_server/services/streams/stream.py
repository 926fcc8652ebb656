"""One stream: a thread reads its frames, another one sends its answers."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING

import grpc

from npucall.errors import CancelledError, DeadlineError, MessageError
from npucall.wire.frames import Begin, Cancel, Chunk, join_error, split_request_frame
from npucall.wire.status import to_status
from npucall_server.executor import going_down
from npucall_server.services.streams.call import Ids, StreamCall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall.wire.frames import RequestFrame
    from npucall_server.handling import Handling
    from npucall_server.services.streams.service import StreamService
    from npucall_server.settings import ServerSettings

_BREAK_SECONDS = 1.0
"""A peer that goes away looks as if it had sent all, until gRPC tells; which is at once."""


class Stream:
    """The calls of one stream, from the frames that open them to the last one of their answers.

    A call is *receiving* until its bytes have come, or it is refused; then it runs; then its answer
    waits to be sent. Whatever ends the stream, each is settled once: its room given back, its line
    written.
    """

    def __init__(
        self,
        service: StreamService,
        frames: Iterator[bytes],
        context: grpc.ServicerContext,
        handling: Handling,
        settings: ServerSettings,
    ) -> None:
        self._service = service
        self._frames = frames
        self._context = context
        self._handling = handling
        self._window = settings.stream_window
        self._call_timeout = settings.call_timeout
        self._changed = threading.Condition()
        self._ids = Ids()
        self._open: dict[int, StreamCall] = {}
        self._answered: deque[StreamCall] = deque()
        self._failure: Exception | None = None
        self._reading = True
        self._draining = False
        self._closed = False

    def answers(self) -> Iterator[bytes]:
        """The frames of the answers, in the order in which calls finish.

        Raises what ends the stream.
        """
        reader = threading.Thread(target=self._read, name="npucall-stream", daemon=True)
        reader.start()
        if not self._context.add_callback(self.close):
            self.close()
        while (call := self._next()) is not None:
            try:
                for frame in call.frames:
                    call.record.response_bytes += len(frame)
                    yield frame
            finally:
                self._settle(call)

    def answer(self, call: StreamCall, frames: Iterator[bytes]) -> None:
        """Sends an answer once its turn has come."""
        call.forget_storages()
        call.frames = frames
        with self._changed:
            if not self._closed:
                self._answered.append(call)
                self._changed.notify_all()
                return
        self._settle(call)

    def refuse(self, call: StreamCall, error: Exception) -> None:
        """Answers a call with an error."""
        status = to_status(self._handling.failure(error, call.record))
        self.answer(call, iter([join_error(call.id, status.SerializeToString())]))

    def fail(self, call: StreamCall, error: Exception) -> None:
        """Answers a call that runs with an error, unless it was refused meanwhile."""
        if self._stop_receiving(call) or call.complete:
            self.refuse(call, error)

    def drain(self) -> None:
        """Ends as soon as no call is left."""
        with self._changed:
            self._draining = True
            self._changed.notify_all()

    def close(self) -> None:
        """The stream has ended: its calls are cancelled, nothing is sent any more."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            unsent = list(self._answered)
            self._answered.clear()
            self._changed.notify_all()
            calls = list(self._open.values())
        for call in calls:
            call.cancel()
        for call in unsent:
            self._settle(call)
        self._end_receiving()

    def _settle(self, call: StreamCall) -> None:
        with self._changed:
            if self._open.pop(call.id, None) is None:
                return
            self._changed.notify_all()
        call.frames = iter(())
        self._service.dismiss(call)
        call.record.total_ns = time.perf_counter_ns() - call.begun_ns
        self._handling.log(call.record)

    def _next(self) -> StreamCall | None:
        """The next call to answer; None where the stream ends."""
        while True:
            with self._changed:
                if self._answered:
                    return self._answered.popleft()
                if self._closed:
                    return None
                if self._failure is not None:
                    raise self._failure
                if not self._open and not self._reading:
                    return None
                if not self._open and self._draining:
                    raise going_down()
                late, seconds = self._late()
                if not late:
                    self._changed.wait(seconds)
            for call in late:
                if self._stop_receiving(call):
                    self.refuse(call, self._lateness(call))

    def _late(self) -> tuple[list[StreamCall], float | None]:
        """Calls whose bytes did not come in time; seconds until the next one."""
        calls = self._open.values()
        receiving = [call for call in calls if call.admitted and call.receiving]
        left = {call: self._seconds_left(call) for call in receiving}
        late = [call for call, seconds in left.items() if seconds <= 0]
        return late, min(left.values(), default=None)

    def _seconds_left(self, call: StreamCall) -> float:
        own = call.time_remaining()
        spent = (time.perf_counter_ns() - call.begun_ns) / 1e9
        allowed = self._call_timeout - spent
        return allowed if own is None else min(own, allowed)

    def _lateness(self, call: StreamCall) -> DeadlineError:
        own = call.time_remaining()
        if own is not None and own <= 0:
            return DeadlineError("call: its deadline ended before all of its bytes had come")
        limit = f"{self._call_timeout:g}"
        return DeadlineError(
            f"call: expected all of its bytes in less than {limit} s, the server's call_timeout",
            limit=limit,
            setting="call_timeout",
        )

    def _read(self) -> None:
        """The thread that reads."""
        try:
            for message in self._frames:
                call_id, frame = split_request_frame(message)
                self._take(call_id, frame, len(message))
            self._check_nothing_missing()
        except grpc.RpcError:
            pass  # cancelled, or the connection broke: gRPC's callback closes
        except Exception as error:  # noqa: BLE001  # ends the stream, told by the other thread
            self._failure = error
        with self._changed:
            self._reading = False
            self._changed.notify_all()
        self._end_receiving()

    def _take(self, call_id: int, frame: RequestFrame, size: int) -> None:
        if isinstance(frame, Begin):
            self._begin(call_id, frame, size)
            return
        call = self._open.get(call_id)
        if call is None:
            if call_id not in self._ids and not isinstance(frame, Cancel):
                raise MessageError(f"call_id: expected one that begin opened, found {call_id}")
            return  # answered already
        if isinstance(frame, Cancel):
            call.cancel()
            if self._stop_receiving(call):
                self.refuse(call, CancelledError("call: cancelled by the caller"))
        elif call.complete:
            raise MessageError(f"frame: expected no more bytes of call {call_id}, found some")
        elif not call.receiving:
            pass  # refused already
        elif isinstance(frame, Chunk):
            call.receive(frame)
        else:
            call.check_complete()
            self._start(call)

    def _begin(self, call_id: int, begin: Begin, size: int) -> None:
        self._ids.add(call_id)
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._open) < self._window)
            if self._closed:
                return
            call = self._opened(call_id, begin, size)
            self._open[call_id] = call
        try:
            self._service.admit(call, begin)
        except Exception as error:  # noqa: BLE001  # handling tells bugs from errors
            if self._stop_receiving(call):
                self.refuse(call, error)
            return
        if not begin.chunked:
            self._start(call)
            return
        if call.arrivals is not None:
            self._service.start(self, call)
        with self._changed:
            call.admitted = True
            self._changed.notify_all()  # its deadline may be the next one

    def _opened(self, call_id: int, begin: Begin, size: int) -> StreamCall:
        peer = self._context.peer()
        record = self._handling.record("ExecuteStream", begin.request_id, peer, size)
        limits = (self._context.time_remaining(), begin.timeout_ns / 1e9 or None)
        seconds = min((limit for limit in limits if limit is not None), default=None)
        return StreamCall(call_id, record, seconds)

    def _start(self, call: StreamCall) -> None:
        if not self._stop_receiving(call, complete=True):
            return
        if call.arrivals is None:
            self._service.start(self, call)
        else:
            call.arrivals.end()  # it runs since it began

    def _stop_receiving(self, call: StreamCall, *, complete: bool = False) -> bool:
        """Whether the call was receiving; of several who ask, one is told so."""
        with self._changed:
            was, call.receiving = call.receiving, False
            call.complete = call.complete or (was and complete)
            return was

    def _check_nothing_missing(self) -> None:
        with self._changed:
            missing = [call.id for call in self._open.values() if call.receiving]
            if not missing or self._changed.wait_for(lambda: self._closed, _BREAK_SECONDS):
                return
        raise MessageError(f"stream: expected all bytes of its calls, found none of {missing}")

    def _end_receiving(self) -> None:
        """Settles calls whose bytes will not come, once nobody reads any more."""
        with self._changed:
            if self._reading or not self._closed:
                return
            calls = list(self._open.values())
        for call in calls:
            if self._stop_receiving(call):
                self.refuse(call, CancelledError("call: cancelled, or its stream broke"))
