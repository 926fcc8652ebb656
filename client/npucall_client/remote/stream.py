"""Many calls on one long-lived stream, several in flight; begun anew where it breaks."""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from npucall.errors import (
    CancelledError,
    DeadlineError,
    NpucallError,
    ServerUnreachableError,
    SharedMemoryError,
)
from npucall.exchange import Credential
from npucall.wire.frames import join_cancel, join_credential, split_response_frame
from npucall.wire.messages import Response
from npucall_client.remote.retry import Attempts
from npucall_client.remote.transfer import Incoming, outgoing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from npucall_client.arguments import BoundCall

    Done: TypeAlias = "Callable[[Response | Exception], object]"
    """Hears how a call ended."""


class Connection(Protocol):
    """What opens streams."""

    def open_stream(
        self, frames: Iterator[bytes], timeout: float | None, authorization: str
    ) -> Any:
        """The call of gRPC, which iterates over the frames that come back."""

    def authorization(self) -> str:
        """What says now who calls; empty where nothing does. Raises UnauthenticatedError."""

    def authorization_lasts(self) -> float | None:
        """Seconds until there is another one; None where there never is."""

    def has_another(self, error: NpucallError, sent: str) -> bool:
        """Whether there is another authorization than that which the server refused."""

    def errors(self, timeout: float) -> AbstractContextManager[None]:
        """Has gRPC's errors become the contract's."""

    def lateness(self, timeout: float) -> NpucallError:
        """What a call that got no answer in time raises."""

    def place(self, call: BoundCall) -> None:
        """Has what lies in shared memory stay there."""

    def withdraw(self, call: BoundCall) -> bool:
        """Has everything travel, where the server does not know the memory; else False."""


class SentCall:
    """A call without an answer yet."""

    def __init__(self, call: BoundCall, timeout: float, request_id: str, done: Done) -> None:
        self.id = 0
        self.call = call
        self.request_id = request_id
        self.timeout = timeout
        self.ends = time.monotonic() + timeout
        self.done = done
        self.incoming = Incoming(call)
        self.attempts = Attempts(self.ends)
        self.waits_for_another_server = False


def _nobody(_: Response | Exception) -> None:
    pass


class CallStream:
    """Sends calls in the order in which they come, hears answers in the order in which they finish.

    Three threads: gRPC's own takes the frames to send, one reads answers and opens the stream, one
    ends calls that are late. ``window``: calls that may be without an answer.
    """

    def __init__(self, connection: Connection, window: int, chunk_bytes: int) -> None:
        self._connection = connection
        self._window = window
        self._chunk_bytes = chunk_bytes
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._work = threading.Condition(self._lock)
        self._sooner = threading.Condition(self._lock)
        self._open: dict[int, SentCall] = {}
        self._unsent: deque[SentCall] = deque()
        self._cancelled: deque[int] = deque()
        self._last_id = 0
        self._watched = float("inf")
        self._closing = False
        self._threads: list[threading.Thread] = []

    def send(self, call: BoundCall, timeout: float, request_id: str, done: Done) -> SentCall:
        """Sends a call once the window has room.

        Raises DeadlineError if it has none in time, CancelledError once this is closed.
        """
        self._connection.place(call)
        sent = SentCall(call, timeout, request_id, done)
        with self._lock:
            self._start_threads()
            has_room = self._room.wait_for(
                lambda: self._closing or len(self._open) < self._window, timeout
            )
            if self._closing:
                raise CancelledError("pipeline: expected it open, found it closed")
            if not has_room:
                raise DeadlineError(
                    f"pipeline: expected one of {self._window} calls to be answered within the "
                    f"timeout of {timeout:g} s, found none"
                )
            self._enqueue(sent)
            if sent.ends < self._watched:
                self._sooner.notify()
        return sent

    def cancel(self, call: SentCall) -> None:
        """Ends a call; the server hears of it."""
        self._give_up(call, CancelledError("call: cancelled"))

    def close(self) -> None:
        """Waits until every call has ended."""
        with self._lock:
            self._closing = True
            self._room.notify_all()
            self._work.notify_all()
            self._sooner.notify()
        for thread in self._threads:
            thread.join()

    def _start_threads(self) -> None:
        if not self._threads:
            for run in self._read_streams, self._watch_deadlines:
                # A stream belongs to the span in which its first call was sent.
                inside = contextvars.copy_context().run
                thread = threading.Thread(
                    target=inside, args=(run,), name="npucall-pipeline", daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def _enqueue(self, call: SentCall) -> None:
        """Under an id of its own. To be called with the lock."""
        self._last_id += 1
        call.id = self._last_id
        self._open[call.id] = call
        self._unsent.append(call)
        self._work.notify_all()

    def _finish(self, call: SentCall, outcome: Response | Exception) -> None:
        with self._lock:
            if self._open.pop(call.id, None) is None:
                return
            self._room.notify()
            if self._closing and not self._open:
                self._work.notify_all()
                self._sooner.notify()
        done, call.done = call.done, _nobody  # what waits for the call is not kept by it
        done(outcome)

    def _give_up(self, call: SentCall, error: NpucallError) -> None:
        with self._lock:
            self._cancelled.append(call.id)
            self._work.notify_all()
        self._finish(call, error)

    def _watch_deadlines(self) -> None:
        while True:
            with self._lock:
                if self._closing and not self._open:
                    return
                now = time.monotonic()
                late = [call for call in self._open.values() if call.ends <= now]
                if not late:
                    ends = (call.ends for call in self._open.values())
                    self._watched = min(ends, default=float("inf"))
                    left = self._watched - now
                    self._sooner.wait(left if self._open else None)
            for call in late:
                self._give_up(call, self._connection.lateness(call.timeout))

    def _read_streams(self) -> None:
        while self._wait_for_calls():
            opened = _OpenStream()
            failure = self._read_one_stream(opened)
            if failure is None or self._has_another(failure, opened):
                failure = ServerUnreachableError("stream: the server ended it")
            self._repeat(failure)

    def _has_another(self, failure: NpucallError, opened: _OpenStream) -> bool:
        """Whether another credential may open a stream that was refused."""
        try:
            return self._connection.has_another(failure, opened.authorization)
        except NpucallError:
            return False

    def _wait_for_calls(self) -> bool:
        """Waits for something to send; False once nothing more will come."""
        with self._lock:
            self._work.wait_for(lambda: self._closing or self._open)
            return bool(self._open)

    def _read_one_stream(self, opened: _OpenStream) -> NpucallError | None:
        """Why the stream ended."""
        try:
            with self._connection.errors(0.0):
                opened.authorization = who = self._connection.authorization()
                stream = self._connection.open_stream(self._frames(opened), None, who)
                opened.stream = stream
                stream.add_callback(lambda: self._end(opened))
                for message in stream:
                    self._take(opened, message)
        except NpucallError as error:
            return None if opened.left else error
        finally:
            self._end(opened)
        return None

    def _end(self, opened: _OpenStream) -> None:
        with self._lock:
            opened.over = True
            self._work.notify_all()
        if opened.stream is not None:
            opened.stream.cancel()

    def _take(self, opened: _OpenStream, message: bytes) -> None:
        call_id, frame = split_response_frame(message)
        with self._lock:
            call = self._open.get(call_id)
        if call is None:
            return  # cancelled, or late
        try:
            response = call.incoming.take(frame)
        except SharedMemoryError as error:
            self._send_whole(call, error)
        except NpucallError as error:
            if call.attempts.may_follow(error):
                call.waits_for_another_server = opened.goes_down = True
            else:
                self._finish(call, error)
        else:
            if response is not None:
                self._finish(call, response)
        if opened.goes_down:
            self._leave_when_answered(opened)

    def _send_whole(self, call: SentCall, error: SharedMemoryError) -> None:
        """Sends a call once more, since the server does not know the memory that it named."""
        try:
            if not self._connection.withdraw(call.call):
                raise error
        except (SharedMemoryError, Warning) as failure:  # warnings may be made errors
            self._finish(call, failure)
            return
        with self._lock:
            if self._open.pop(call.id, None) is not None:
                call.incoming = Incoming(call.call)
                self._enqueue(call)

    def _leave_when_answered(self, opened: _OpenStream) -> None:
        """The server goes down: its stream is left once it owes no answer."""
        with self._lock:
            owed = [call for call in self._open.values() if not call.waits_for_another_server]
        if not owed:
            opened.left = True
            self._end(opened)

    def _repeat(self, failure: NpucallError) -> None:
        """Sends the unanswered calls once more, after the longest pause that one of them needs.

        Those behind which there is no attempt end.
        """
        with self._lock:
            calls = list(self._open.values())
        pauses = [self._pause_of(call, failure) for call in calls]
        if not calls:
            return
        threading.Event().wait(max(pauses))
        with self._lock:
            self._unsent = deque(self._open.values())
            self._cancelled.clear()
            for call in self._unsent:
                call.incoming = Incoming(call.call)
                call.waits_for_another_server = False

    def _pause_of(self, call: SentCall, failure: NpucallError) -> float:
        """Before its next attempt; where there is none, the call ends."""
        pause = call.attempts.pause_after(failure)
        if pause is None:
            self._finish(call, failure)
        return pause or 0.0

    def _frames(self, opened: _OpenStream) -> Iterator[bytes]:
        """What is sent, in gRPC's thread."""
        while True:
            with self._lock:
                has_work = self._work.wait_for(
                    lambda: opened.over or self._cancelled or self._is_ready(),
                    self._connection.authorization_lasts(),
                )
                if opened.over or (has_work and not (self._cancelled or self._unsent)):
                    return
                cancelled = self._cancelled.popleft() if self._cancelled else None
                call = self._unsent.popleft() if cancelled is None and has_work else None
            yield from self._renewal(opened)
            if cancelled is not None:
                yield join_cancel(cancelled)
            elif call is not None:
                yield from self._call_frames(opened, call)
            del call  # its arrays are not kept until the next one comes

    def _renewal(self, opened: _OpenStream) -> Iterator[bytes]:
        """The frame that tells the server of another credential, where there is one."""
        try:
            now = self._connection.authorization()
        except NpucallError:
            return  # the server ends the stream; who opens the next one is told
        if now and now != opened.authorization:
            opened.authorization = now
            yield join_credential(Credential(now))

    def _is_ready(self) -> bool:
        return bool(self._unsent) or (self._closing and not self._open)

    def _call_frames(self, opened: _OpenStream, call: SentCall) -> Iterator[bytes]:
        left = call.ends - time.monotonic()
        if call.id not in self._open or left <= 0:
            return
        timeout_ns = max(1, int(left * 1e9))
        for frame in outgoing(call.id, call.call, call.request_id, self._chunk_bytes, timeout_ns):
            yield frame
            if opened.over or call.id not in self._open:
                return  # it was cancelled, or has its answer


class _OpenStream:
    """One stream."""

    def __init__(self) -> None:
        self.stream: Any = None
        self.authorization = ""
        """What the server was told last."""
        self.over = False
        self.goes_down = False
        self.left = False
