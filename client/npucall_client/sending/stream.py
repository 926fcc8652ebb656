"""Many calls on one long-lived stream, several in flight; opened again if it breaks."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol

from npucall.errors import (
    CancelledError,
    DeadlineError,
    NpucallError,
    ServerUnreachableError,
    SharedMemoryError,
)
from npucall.wire.frames import split_response_frame
from npucall.wire.stream_messages import response_frames
from npucall_client.sending.losses import is_break, needs_look, not_begun
from npucall_client.sending.own_calls import Again, OwnCalls
from npucall_client.sending.retry import LATER
from npucall_client.sending.writer import Authorized, OpenStream, SentCall, Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from npucall.exchange import ResponseFrame
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.retry import Attempts
    from npucall_client.sending.senders import Messages, Sender, Stream, Task
    from npucall_client.sending.writer import Done


class Connection(Authorized, Again, Protocol):
    """What opens streams."""

    @property
    def sender(self) -> Sender:
        """The sender: it waits and sends."""

    @property
    def target(self) -> str:
        """The target of the streams."""

    @property
    def instance(self) -> str:
        """The instance of the process that answered there last."""

    async def has_ended(self, instance: str) -> bool:
        """Whether that process is gone."""

    def open_stream(
        self,
        messages: Messages,
        timeout: float | None,
        authorization: str,
        *,
        ended: Callable[[], object],
    ) -> Stream:
        """The messages that come back."""

    async def has_another(self, error: NpucallError, sent: str) -> bool:
        """Whether there is an authorization other than ``sent``, which the server refused."""

    def attempts(self, ends: float) -> Attempts:
        """The attempts after the first one that a call may make until ``ends``."""

    def errors(self, timeout: float) -> AbstractContextManager[None]:
        """Turns gRPC's errors into the contract's."""

    def lateness(self, timeout: float) -> NpucallError:
        """The error of a call that got no answer in time."""

    def place(self, call: BoundCall) -> None:
        """Leaves arrays in shared memory there."""

    def withdraw(self, call: BoundCall) -> bool:
        """Makes all arrays travel, since the server does not know the memory; False if they did."""


def _next_time(call: SentCall) -> float:
    """The time at which the stream must look at a call again."""
    return call.ends if call.rests_until is None else min(call.ends, call.rests_until)


def _nobody(_: Response | Exception) -> None:
    pass


class CallStream:
    """Sends calls in the order in which they come, hears answers in the order in which they finish.

    Three things go on at a time: gRPC takes the messages to send, one task reads answers and opens
    the stream, one task ends calls that are late. ``window``: calls that may be without an answer.
    ``frames_per_message``: frames that the server takes in a message.
    """

    def __init__(
        self, connection: Connection, window: int, chunk_bytes: int, frames_per_message: int
    ) -> None:
        self._connection = connection
        self._window = window
        self._chunk_bytes = chunk_bytes
        self._lock = threading.Lock()
        sender = connection.sender
        self._room = sender.condition(self._lock)
        self._sooner = sender.condition(self._lock)
        self._open: dict[int, SentCall] = {}
        work = sender.condition(self._lock)
        self._writer = Writer(
            connection, self._open, work, self._lock, chunk_bytes, frames_per_message
        )
        self._last_id = 0
        self._watched = float("inf")
        self._closing = False
        self._tasks: list[Task] = []
        self._own = OwnCalls(
            connection, sender, lambda call, outcome: self._finish((call, outcome))
        )
        self._on_their_own: dict[int, SentCall] = {}

    async def send(self, call: BoundCall, timeout: float, request_id: str, done: Done) -> SentCall:
        """Sends a call once the window has room.

        Raises DeadlineError if it has none in time, CancelledError once this is closed.
        """
        self._connection.place(call)
        sent = SentCall(call, timeout, request_id, done, self._connection.attempts)
        with self._lock:
            self._start()
            if len(self._open) >= self._window:
                await self._wait_for_room(timeout)
            if self._closing:
                raise CancelledError("the pipeline is closed; client.pipeline() opens another one")
            self._enqueue(sent)
            if sent.ends < self._watched:
                self._sooner.notify()
        return sent

    def cancel(self, call: SentCall) -> None:
        """Ends a call; the server hears of it."""
        self._give_up(call, CancelledError("the caller cancelled the call"))

    async def close(self) -> None:
        """Waits until every call has ended."""
        with self._lock:
            self._closing = True
            self._room.notify_all()
            self._writer.close()
            self._sooner.notify()
        for task in self._tasks:
            await task.join()
        await self._own.close()

    async def _wait_for_room(self, timeout: float) -> None:
        if not await self._room.wait_for(
            lambda: self._closing or len(self._open) < self._window, timeout
        ):
            raise DeadlineError(
                f"the server answered none of the {self._window} open calls of the pipeline within "
                f"{timeout:g} s (timeout)"
            )

    def _start(self) -> None:
        if not self._tasks:
            for run in self._read_streams, self._watch_deadlines:
                # A stream belongs to the span in which its first call was sent.
                self._tasks.append(self._connection.sender.start(run, "npucall-pipeline"))

    def _enqueue(self, call: SentCall) -> None:
        """Gives a call an id and sends it. Call it with the lock held."""
        self._number(call)
        self._writer.add(call)

    def _number(self, call: SentCall) -> None:
        """Gives a call a new id, under which nothing was sent yet. Call it with the lock held."""
        self._last_id += 1
        call.id = self._last_id
        self._open[call.id] = call

    def _finish(self, *outcomes: tuple[SentCall, Response | Exception]) -> None:
        """Ends the calls that have not ended yet."""
        with self._lock:
            ended = [each for each in outcomes if self._forget(each[0])]
            self._room.notify(len(ended))
            if self._closing and not self._open:
                self._writer.wake()
                self._sooner.notify()
        for call, outcome in ended:
            done, call.done = call.done, _nobody  # the call must not keep its waiter in memory
            done(outcome)

    def _forget(self, call: SentCall) -> bool:
        """Removes a call; returns whether it had not ended yet. Call it with the lock held."""
        places = self._open, self._on_their_own
        call.is_over = True
        return any(place.pop(call.id, None) is not None for place in places)

    def _give_up(self, call: SentCall, error: NpucallError) -> None:
        with self._lock:
            if call.id in self._open:
                self._writer.cancel(call.id)
        self._finish((call, error))

    async def _watch_deadlines(self) -> None:
        while True:
            with self._lock:
                if self._closing and not self._open:
                    return
                now = time.monotonic()
                self._send_rested(now)
                late = [call for call in self._open.values() if call.ends <= now]
                if not late:
                    times = (_next_time(call) for call in self._open.values())
                    self._watched = min(times, default=float("inf"))
                    left = self._watched - now
                    await self._sooner.wait(left if self._open else None)
            for call in late:
                self._give_up(call, self._connection.lateness(call.timeout))

    def _send_rested(self, now: float) -> None:
        """Sends the calls again that a full server refused. Call it with the lock held."""
        for call in self._open.values():
            if call.rests_until is not None and call.rests_until <= now:
                call.rests_until = None
                self._writer.add(call)

    async def _read_streams(self) -> None:
        while await self._writer.wait():
            opened = OpenStream()
            opened.instance = self._connection.instance
            failure = await self._read_one_stream(opened)
            if failure is None or await self._has_another(failure, opened):
                failure = ServerUnreachableError("stream: the server ended it")
            await self._repeat(failure, opened)

    async def _has_another(self, failure: NpucallError, opened: OpenStream) -> bool:
        """Whether another credential may open a stream that was refused."""
        try:
            return await self._connection.has_another(failure, opened.authorization)
        except NpucallError:
            return False

    async def _read_one_stream(self, opened: OpenStream) -> NpucallError | None:
        """Reads a stream to its end, and returns why it ended."""
        try:
            with self._connection.errors(0.0):
                opened.authorization = who = await self._connection.authorization()
                messages = self._writer.messages(opened)
                stream = self._connection.open_stream(
                    messages, None, who, ended=lambda: self._end(opened)
                )
                opened.stream = stream
                async for message in stream:
                    self._take(opened, message)
        except NpucallError as error:
            return None if opened.left else error
        finally:
            self._end(opened)
        return None

    def _end(self, opened: OpenStream) -> None:
        with self._lock:
            opened.over = True
            self._writer.wake()
        if opened.stream is not None:
            opened.stream.cancel()

    def _take(self, opened: OpenStream, message: bytes) -> None:
        frames = [split_response_frame(frame) for frame in response_frames(message)]
        with self._lock:
            calls = [self._open.get(call_id) for call_id, _ in frames]
        outcomes = []
        for call, (_, frame) in zip(calls, frames, strict=True):
            outcome = None if call is None else self._taken(opened, call, frame)
            if call is not None and outcome is not None:
                outcomes.append((call, outcome))
        self._finish(*outcomes)
        if opened.goes_down:
            self._leave_when_answered(opened)

    def _taken(
        self, opened: OpenStream, call: SentCall, frame: ResponseFrame
    ) -> Response | Exception | None:
        """How a call ends with this frame; None if it goes on."""
        try:
            return call.incoming.take(frame)
        except SharedMemoryError as error:
            return self._send_whole(call, error)
        except NpucallError as error:
            if error.repeat in LATER:
                return self._rest(call, error)
            if not call.attempts.may_follow(error):
                return error
            call.losses.heard(error, self._connection.target, opened.instance, ended=True)
            call.waits_for_another_server = opened.goes_down = True
            return None

    def _rest(self, call: SentCall, error: NpucallError) -> Exception | None:
        """The server is full: the call is sent again, under another id, when it may have room.

        Returns the error that ends the call if there is no time for that.
        """
        pause = call.attempts.pause_after(error)
        if pause is None:
            return error
        with self._lock:
            if self._open.pop(call.id, None) is not None:
                call.begin_anew()
                self._number(call)
                call.rests_until = time.monotonic() + pause
                if call.rests_until < self._watched:
                    self._sooner.notify()
        return None

    def _send_whole(self, call: SentCall, error: SharedMemoryError) -> Exception | None:
        """Sends a call once more, with its arrays, since the server does not know their memory.

        Returns the error that ends the call if that is not possible.
        """
        try:
            if not self._connection.withdraw(call.call):
                return error
        except (SharedMemoryError, Warning) as failure:  # warnings may be made errors
            return failure
        with self._lock:
            if self._open.pop(call.id, None) is not None:
                call.begin_anew()
                self._enqueue(call)
        return None

    def _leave_when_answered(self, opened: OpenStream) -> None:
        """The server goes down: leaves its stream when no answer is missing."""
        with self._lock:
            owed = [call for call in self._open.values() if not call.waits_for_another_server]
        if not owed:
            opened.left = True
            self._end(opened)

    async def _repeat(self, failure: NpucallError, opened: OpenStream) -> None:
        """Sends the unanswered calls once more, after the longest pause that one of them needs.

        Calls without another attempt end. Calls that may have made the server end are sent one by
        one.
        """
        with self._lock:
            calls = list(self._open.values())
        pauses = [self._pause_of(call, failure) for call in calls]
        if not self._open:
            return
        await self._count_losses(failure, opened)
        await self._connection.sender.event().wait(max(pauses))
        with self._lock:
            own = [call for call in self._open.values() if call.losses.lost]
            for call in own:
                self._on_their_own[call.id] = self._open.pop(call.id)
            self._room.notify(len(own))
            self._writer.begin_anew(self._open.values())
            for call in self._open.values():
                call.begin_anew()
                call.waits_for_another_server = False
                call.rests_until = None
        for call in own:
            self._own.send(call)

    async def _count_losses(self, failure: NpucallError, opened: OpenStream) -> None:
        """Counts a loss for each call that the server may have begun: sent, and not refused."""
        if not is_break(failure):
            return
        ended = needs_look(failure) and await self._connection.has_ended(opened.instance)
        with self._lock:
            calls = list(self._open.values())
        for call in calls:
            if call.is_sent and not call.waits_for_another_server:
                target = self._connection.target
                call.losses.heard(failure, target, opened.instance, ended=ended)

    def _pause_of(self, call: SentCall, failure: NpucallError) -> float:
        """The pause before the next attempt of a call; ends the call if there is none."""
        pause = call.attempts.pause_after(failure)
        if pause is None:
            self._finish((call, failure if call.is_sent else not_begun(failure)))
        return pause or 0.0
