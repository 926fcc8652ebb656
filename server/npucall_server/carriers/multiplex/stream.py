"""One stream: a thread reads its messages, another one sends its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Generator, Iterable, Iterator
from functools import partial
from itertools import cycle

from npucall.errors import CancelledError, MessageError, UnauthenticatedError
from npucall.exchange import (
    COMING,
    PASSED_OVER,
    Begin,
    Chunk,
    Credential,
    Event,
    RequestFrame,
    State,
    after,
    event_of,
)
from npucall.limits import KIB
from npucall.wire.frames import join_error, split_request_frame
from npucall.wire.stream_messages import request_frames
from npucall_server.access.callers import went_away
from npucall_server.accounts.ledger import Entry
from npucall_server.carriers.multiplex.call import StreamCall, Streaming, answered, opened
from npucall_server.carriers.multiplex.early_outputs import EarlyFrames
from npucall_server.carriers.multiplex.open_calls import OpenCalls
from npucall_server.carriers.multiplex.packing import Packing
from npucall_server.carriers.peers import Visitor
from npucall_server.carriers.threads import TaskLine
from npucall_server.scheduling.executor import going_down

STREAM_WINDOW = 32
"""Calls of one stream that may be without a complete answer; no more are read meanwhile."""
_BREAK_SECONDS = 1.0
"""A peer that goes away looks as if it had sent all, until gRPC tells; which is at once."""
_UNREAD_SECONDS = 5.0
"""A stream is cut after this time if its caller's credential is not good and it reads nothing."""
_SMALL_BYTES = 64 * KIB
"""For calls up to this size, waking another thread costs more than the call."""


class Stream:
    """The calls of one stream, from the frames that open them to the last one of their answers.

    The table of ``npucall.exchange`` gives the state of each call. An answer counts from when it is
    decided. However the stream ends, each call is settled once: its room is given back and its
    line is written.
    """

    def __init__(
        self, messages: Iterator[bytes], peer: Visitor, common: Streaming, place: Entry
    ) -> None:
        self._messages, self._peer, self._common = messages, peer, common
        device = common.executions.executor.device
        self._lines = cycle([TaskLine() for _ in range(device.lanes)])
        """The lines of other small calls."""
        self._calls = OpenCalls(STREAM_WINDOW, place)
        self._failure: Exception | None = None
        """The error that ends the stream once all decided answers have been sent."""
        self._unknown: Exception | None = None
        """The error that ends it before that: its caller's credential is no longer good."""
        self._unknown_since = 0.0
        self._reading = True
        self._draining = False

    def answers(self) -> Generator[bytes, None, None]:
        """Messages of the answers, in the order in which calls finish.

        Raises what ends the stream.
        """
        reader = threading.Thread(target=self._read, name="npucall-stream", daemon=True)
        reader.start()
        if not self._peer.add_callback(self.close):
            self.close()
        packing = Packing.for_caller(self._peer, self._calls.next_answer)
        try:
            while packing.has_more() or packing.add(self._next()):
                yield packing.message()
                for call in packing.sent():
                    if self._calls.sent(call):
                        self._settle(call)
                if self._unknown is not None:
                    raise self._unknown
        finally:
            self._leave(packing.unsent())

    def drain(self) -> None:
        """Ends as soon as no call is left."""
        with self._calls.changed:
            self._draining = True
            self._calls.changed.notify()

    def look(self) -> None:
        """Ends the stream at once if its caller's credential is no longer good."""
        if self._unknown is not None:
            if time.monotonic() - self._unknown_since > _UNREAD_SECONDS:
                self._peer.cancel()  # it does not read what is being sent
            return
        try:
            self._common.door.guard.check(self._peer.identity)
        except UnauthenticatedError as error:
            with self._calls.changed:
                if not self._calls.closed:
                    self._unknown, self._unknown_since = error, time.monotonic()
                    self._calls.changed.notify()

    def close(self) -> None:
        """The stream has ended: cancels its calls and sends nothing more."""
        left = self._calls.close()
        self._failure = self._unknown = None  # their frames have this stream
        if left is None:
            return
        calls, unsent = left
        for call in reversed(calls):  # what one gives back is for a call of somebody else
            call.caller.cancel()
        self._leave(unsent)
        self._end_receiving()

    def _leave(self, calls: Iterable[StreamCall]) -> None:
        """Their answers are not sent. Calls that still run settle when they end."""
        for call in calls:
            if self._calls.unsent(call):
                self._settle(call)

    # --- The exchange -----------------------------------------------------------------------------

    def _read(self) -> None:
        """The thread that reads."""
        try:
            for message in self._messages:
                for frame in request_frames(message):
                    self._take(*split_request_frame(frame), len(frame))
            self._check_nothing_missing()
        except CancelledError:
            pass  # or the connection broke: the callback closes
        except Exception as error:  # noqa: BLE001  # ends the stream, told by the other thread
            self._failure = error
        with self._calls.changed:
            self._reading = False
            if self._calls.closed:
                self._failure = None
            self._calls.changed.notify()
        self._end_receiving()

    def _take(self, call_id: int, frame: RequestFrame, size: int) -> None:
        if isinstance(frame, Begin):
            self._begin(call_id, frame, size)
            return
        if isinstance(frame, Credential):  # the caller proves again who it is
            peer, guard = self._peer, self._common.door.guard
            peer.identity = guard.renew(peer.identity, frame.authorization)
            return
        (call, state), event = self._calls.found(call_id), event_of(frame)
        if after(state, event) is None:
            raise MessageError(f"call_id: expected a call that `begin` opened, found {call_id}")
        if call is None or event in PASSED_OVER[state]:
            return
        if event is Event.CANCEL:
            call.caller.cancel()
            self._refuse(call, went_away(), COMING)
        elif isinstance(frame, Chunk):
            call.receive(frame)
        else:
            call.check_complete()
            self._complete(call)

    def _begin(self, call_id: int, begin: Begin, size: int) -> None:
        if not self._calls.wait_for_room(call_id):
            return
        call = opened(call_id, begin, size, self._peer, self._common)
        self._calls.add(call)
        is_small = len(begin.request) <= _SMALL_BYTES and not (begin.program or begin.chunked)
        try:
            call.execution.prepare(begin.request, chunked=begin.chunked)
            end = partial(self._give_way, call) if begin.chunked else None
            call.execution.admit(end, at_once=is_small)
            if begin.chunked:
                self._expect(call, begin)
        except Exception as error:  # noqa: BLE001  # `Outcome` tells bugs from errors
            self._refuse(call, error)
            return
        if call.execution.is_quick:
            self._run(call)
        elif not begin.chunked or call.execution.runs_as_bytes_come:
            self._common.threads.start(
                partial(self._run, call), next(self._lines) if is_small else None
            )

    def _expect(self, call: StreamCall, begin: Begin) -> None:
        receiving = call.execution.expect(f"call {call.id}")
        if begin.early_outputs:
            reply = call.execution.answer_early(partial(self._calls.answer_early, call))
            if reply is not None:
                call.frames = call.early = EarlyFrames(call.id, reply, self._common.chunk_bytes)
        with self._calls.changed:
            call.receiving = receiving
            self._calls.changed.notify()  # its deadline may be the next one

    def _complete(self, call: StreamCall) -> None:
        if not self._calls.advance(call, Event.END, COMING):
            return
        call.execution.end_of_bytes()
        if not call.execution.runs_as_bytes_come:
            self._common.threads.start(partial(self._run, call))

    # --- Answers ----------------------------------------------------------------------------------

    def _run(self, call: StreamCall) -> None:
        """Runs a call, in a thread for calls."""
        try:
            call.execution.run()
            frames, event = answered(call, self._common.chunk_bytes)
        except Exception as error:  # noqa: BLE001  # `Outcome` tells bugs from errors
            self._refuse(call, error)
            return
        if self._calls.advance(call, event):
            self._answer(call, frames)

    def _refuse(
        self, call: StreamCall, error: Exception, since: Container[State] = frozenset(State)
    ) -> None:
        """Answers a call with an error, unless it is already answered."""
        if self._calls.advance(call, Event.ERROR, since):
            frames = iter([join_error(call.id, call.outcome.status(error))])
            self._answer(call, frames, failed=True)

    def _answer(self, call: StreamCall, frames: Iterator[bytes], *, failed: bool = False) -> None:
        """Sends an answer, or the end of it, once its turn has come."""
        call.forget_storages()
        call.execution.may_end_by(self._peer.cancel)
        if call.early is None:
            call.frames = frames
        else:
            call.early.end(frames, failed=failed)
        if not self._calls.answer(call):
            self._settle(call)

    def _next(self) -> StreamCall | None:
        """The next call to answer; None if the stream ends."""
        calls = self._calls
        while True:
            with calls.changed:
                if self._unknown is not None and not calls.closed:
                    raise self._unknown
                if calls.answered:
                    return calls.answered.popleft()
                if calls.closed:
                    return None
                if self._failure is not None:
                    raise self._failure
                if not calls and not self._reading:
                    return None
                if not calls and self._draining:
                    raise going_down()
                late, seconds = calls.late(self._common.peers)
                if not late and not calls.changed.wait(seconds) and not calls:
                    return None  # it has been idle for long
            for call in late:
                self._refuse(call, call.lateness(self._common.peers), COMING)

    def _settle(self, call: StreamCall) -> None:
        if self._calls.settle(call):
            call.settle()

    # --- What does not come -----------------------------------------------------------------------

    def _give_way(self, call: StreamCall) -> None:
        """Ends a call whose bytes still come, because others need its room."""
        self._refuse(call, call.execution.gave_way(), COMING)

    def _check_nothing_missing(self) -> None:
        with self._calls.changed:
            missing = [call.id for call in self._calls.receiving()]
        if missing and not self._calls.wait_until_closed(_BREAK_SECONDS):
            raise MessageError(
                f"stream: expected all bytes of its calls, found its end before those of {missing}"
            )

    def _end_receiving(self) -> None:
        """Settles calls whose bytes will not come, once the stream is no longer read."""
        with self._calls.changed:
            if self._reading or not self._calls.closed:
                return
            calls = self._calls.receiving()
        for call in calls:
            self._refuse(call, went_away(), COMING)
