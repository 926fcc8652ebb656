"""One call of a stream: who waits for it, where its exchange is, its execution, its answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from npucall.errors import DeadlineError, StalledError
from npucall.exchange import TRANSITIONS, Begin, Chunk, Event, Receiving, Sending, State, event_of
from npucall.wire.frames import join_chunk, join_end, join_reply
from npucall.wire.messages import join_response
from npucall.wire.rpcs import EXECUTE_STREAM
from npucall_server.calls.beginning import Executions
from npucall_server.calls.execution import Execution
from npucall_server.carriers.door import Door, Outcome
from npucall_server.carriers.multiplex.early_outputs import EarlyFrames
from npucall_server.carriers.peers import Peers, Visitor
from npucall_server.carriers.threads import Threads


class Streaming(NamedTuple):
    """What all streams use."""

    executions: Executions
    door: Door
    peers: Peers
    threads: Threads
    """In which calls run."""
    chunk_bytes: int
    """The size of chunks of outputs."""


_lock = threading.Lock()
"""Of all callers: it is held for a moment, and one for each would have to be made."""


class StreamCaller:
    """Who waits for one call of a stream: until it cancels the call, or the stream ends.

    ``seconds``: until the deadline.
    """

    def __init__(self, stream: Visitor, request_id: str, seconds: float | None) -> None:
        self.peer, self.metadata = stream.peer, stream.metadata
        self.identity, self.owner = stream.identity, stream.owner
        self.request_id, self.carrier = request_id, stream.carrier
        self._ends = None if seconds is None else time.monotonic() + seconds
        self.callbacks: list[Callable[[], None]] | None = []
        """Whom it tells when it cancels; None once it no longer waits: they may hold the call."""

    def time_remaining(self) -> float | None:
        """Until the deadline of the call or of its stream, whichever comes first."""
        return None if self._ends is None else self._ends - time.monotonic()

    def is_active(self) -> bool:
        """Whether the call is not cancelled and its stream has not ended."""
        return self.callbacks is not None

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls back when it cancels."""
        with _lock:
            if self.callbacks is None:
                return False
            self.callbacks.append(callback)
            return True

    def cancel(self) -> None:
        """The caller no longer waits."""
        with _lock:
            callbacks, self.callbacks = self.callbacks, None
        for callback in callbacks or ():
            callback()


class StreamCall:
    """A call from its first frame to its last."""

    def __init__(
        self,
        call_id: int,
        caller: StreamCaller,
        execution: Execution,
        outcome: Outcome,
        state: State,
    ) -> None:
        self.id = call_id
        self.caller = caller
        self.execution = execution
        self.outcome = outcome
        self.state = state
        """Changed only with the lock of its stream."""
        self.receiving: Receiving | None = None
        """Its storages, if they come in chunks and the call has been admitted."""
        self.frames: Iterator[bytes] = iter(())
        """The answer."""
        self.early: EarlyFrames | None = None
        """The answer, if it may begin before the call has run."""
        self.is_queued = self.is_decided = False
        """Whether frames of the answer wait or are being sent; whether the last is among them."""
        self._moved_ns = time.perf_counter_ns()

    def seconds_left(self, peers: Peers) -> float:
        """How long its next bytes may still take."""
        own = self.caller.time_remaining()
        left = self._patience(peers) - (time.perf_counter_ns() - self._moved_ns) / 1e9
        return left if own is None else min(own, left)

    def lateness(self, peers: Peers) -> DeadlineError:
        """The error if they have not come in time."""
        own = self.caller.time_remaining()
        if own is not None and own <= 0:
            return DeadlineError("the deadline of the call ended before all its bytes arrived")
        limit = f"{self._patience(peers):g}"
        return StalledError(
            f"no bytes of the call arrived for {limit} s (setting peer_timeout); repeat the call",
            limit=limit,
            setting="peer_timeout",
        )

    def _patience(self, peers: Peers) -> float:
        some = self.receiving is not None and self.receiving.received
        return peers.timeout if some else peers.first_timeout

    def receive(self, chunk: Chunk) -> None:
        """Takes the next part of a storage. Raises MessageError where it does not fit."""
        receiving = self.receiving  # the thread of answers may refuse the call this moment
        if receiving is not None:
            receiving.take(chunk)
            self._moved_ns = time.perf_counter_ns()
            self.execution.record.request_bytes += len(chunk.data)

    def check_complete(self) -> None:
        """Raises MessageError where bytes are missing."""
        receiving = self.receiving
        if receiving is not None:
            receiving.end()

    def forget_storages(self) -> None:
        """Its inputs are no longer read."""
        self.receiving = None
        self.execution.is_answered()

    def settle(self) -> None:
        """It has been answered, or its stream has ended: gives everything back."""
        self.frames, self.early = iter(()), None
        self.caller.callbacks = None
        self.outcome.end()  # whoever waits for the last call wants its line and its account
        self.execution.give_back()


def opened(call_id: int, begin: Begin, size: int, peer: Visitor, common: Streaming) -> StreamCall:
    """The call that a frame of ``size`` bytes opens."""
    seconds, limit = begin.timeout_ns / 1e9 or None, peer.time_remaining()
    if limit is not None and (seconds is None or limit < seconds):
        seconds = limit
    caller = StreamCaller(peer, begin.request_id, seconds)
    outcome = Outcome(common.door, EXECUTE_STREAM.name, caller)
    outcome.record.request_bytes = size
    execution = common.executions.begin(caller, outcome.record, program=begin.program)
    state = TRANSITIONS[State.NEW][event_of(begin)]
    return StreamCall(call_id, caller, execution, outcome, state)


def answered(call: StreamCall, chunk_bytes: int) -> tuple[Iterator[bytes], Event]:
    """The frames that end an answer, and the event that this is for the call."""
    execution = call.execution
    if execution.is_program:
        return iter([join_reply(call.id, execution.reply_message(), program=True)]), Event.REPLY
    reply, timings, places = execution.reply()
    if call.early is not None and call.early.is_begun:  # the outputs were sent before
        return iter([join_reply(call.id, join_response(reply, timings, ()))]), Event.REPLY
    sending = Sending([None if isinstance(each, tuple) else each for each in places])
    if not sending.is_chunked():
        return iter([join_reply(call.id, join_response(reply, timings, places))]), Event.REPLY
    response = join_response(reply, timings, ())
    return _in_chunks(call.id, response, sending, chunk_bytes), Event.REPLY_CHUNKED


def _in_chunks(
    call_id: int, response: bytes, sending: Sending, chunk_bytes: int
) -> Iterator[bytes]:
    yield join_reply(call_id, response)
    for chunk in sending.chunks(chunk_bytes):
        yield join_chunk(call_id, chunk)
    yield join_end(call_id)
