"""One stream with many calls, several in flight; a stream that breaks fails all of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from npucall.errors import DeadlineError, DeviceLostError, NpucallError, Repeat
from npucall.errors import ServerUnreachableError as Unreachable
from npucall.wire.frames import split_response_frame
from npucall.wire.stream_messages import response_frames
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.frames.many_calls import MOST_CALLS, ManyCalls, answer_in
from npucall_client.sending.request import Request
from npucall_client.sending.writer import OpenStream, SentCall, Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.exchange import ResponseFrame
    from npucall.wire.messages import Response
    from npucall_client.sending.frames.frame_connection import CallConnection
    from npucall_client.sending.link import Link


_ASK_SECONDS = 1.0
"""Between two looks whether anybody still waits for the process that follows one that has ended."""


class CallObserver(Protocol):
    """Is told how calls end."""

    def answered(self, call: SentCall, outcome: Response | NpucallError) -> None:
        """The server has answered a call, or refused it."""

    def broke(
        self, stream: CallStream, calls: Sequence[SentCall], error: NpucallError, *, ended: bool
    ) -> None:
        """The stream is over, and these calls have no answer; ``ended``: so is its process."""


class CallStream:
    """Sends calls in the order in which they come, hears answers in the order in which they finish.

    One task reads answers. Each call is a frame of its own where the link has a connection of
    frames; else gRPC takes the messages to send. ``request``: the session and the reservation of
    its calls. ``one_stream``: all are messages of one stream in any case.
    """

    def __init__(
        self, link: Link, request: Request, observer: CallObserver, *, one_stream: bool
    ) -> None:
        self.link = link
        self._one_stream = one_stream
        self._many: ManyCalls | None = None
        """What sends the calls, if each is a frame."""
        self.instance: str | None = ""
        """The process that it goes to, if that is known."""
        self._observer = observer
        self._attempts = Attempts(request)
        self._window = link.limits.stream_window
        self._lock = threading.Lock()
        sender = link.sender
        self._room = sender.condition(self._lock)
        self._open: dict[int, SentCall] = {}
        self._opened = OpenStream()
        self._writer = Writer(
            link,
            self._open,
            sender.condition(self._lock),
            self._lock,
            link.limits.chunk_bytes,
            link.limits.frames_per_message,
        )
        self._last_id = 0
        self._failure: NpucallError | None = None
        """Why it ended before it had any call."""
        self._leaves = False
        self._has_heard = False
        self._task = sender.start(self._read, "npucall-pipeline")

    @property
    def takes_calls(self) -> bool:
        """Whether it is neither over, nor left by its calls."""
        return not (self._leaves or self._opened.over or self._last_id == MOST_CALLS)

    async def failure_of(self, call: SentCall) -> NpucallError | None:
        """Why a call has no stream: this one ended before it had any. None if it had one."""
        if self._last_id or self.takes_calls:
            return None
        await self._task.join()
        self._tell(call)
        return self._failure

    async def send(self, call: SentCall) -> bool:
        """Sends a call once the window has room; False if this stream takes no more calls.

        Raises DeadlineError if it has none in time.
        """
        if self._many is None or self.link.memories.regions:
            self.link.place(call.call)
        with self._lock:
            if len(self._open) >= self._window:
                await self._wait_for_room(call.attempts)
            if not self.takes_calls:
                return False
            self._last_id += 1
            call.id, call.stream = self._last_id, self
            call.begin_anew()
            call.waits = True
            self._open[call.id] = call
            many = self._many
            if many is None:
                self._writer.add(call)
        if many is not None:
            await many.send(call)
        return True

    async def _wait_for_room(self, attempts: Attempts) -> None:
        if not await self._room.wait_for(
            lambda: not self.takes_calls or len(self._open) < self._window, attempts.left
        ):
            raise DeadlineError(
                f"the server answered none of the {self._window} open calls of the pipeline within "
                f"{attempts.request.timeout:g} s (timeout)"
            )

    def forget(self, call: SentCall) -> bool:
        """The caller no longer waits for a call; the server hears of it. False if it had ended."""
        with self._lock:
            if self._open.get(call.id) is not call:
                return False
            del self._open[call.id]
            many = self._many
            if many is None:
                self._writer.cancel(call.id)
            self._room.notify()
        if many is not None:
            many.forget(call.id)
        self._end_if_left()
        return True

    def leave(self) -> None:
        """Its server goes down: it takes no more calls, and ends when no answer is missing."""
        with self._lock:
            self._leaves = True
            self._room.notify_all()
        self._end_if_left()

    async def close(self) -> None:
        """Ends it well. No call may be without an answer."""
        with self._lock:
            self._writer.close()
        if not self._has_heard or self._many is not None:
            self._end()  # nobody may ever answer, or says that all was answered
        await self._task.join()

    def _end_if_left(self) -> None:
        if self._leaves and not self._open:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self._opened.over = True
            self._writer.wake()
            self._room.notify_all()
        if self._opened.stream is not None:
            self._opened.stream.cancel()

    async def _read(self) -> None:
        """Reads it to its end, and tells its calls why it ended."""
        failure = await self._read_all()
        if not self._last_id:
            self._failure = failure.with_traceback(None)  # its frames would keep this stream
        self._end()
        with self._lock:
            calls = list(self._open.values())
            self._open.clear()
            self._writer.forget()
        for call in calls:
            self._tell(call)
        ended = failure.repeat is Repeat.FEW_TIMES and any(call.is_sent for call in calls)
        if ended and not isinstance(failure, DeviceLostError):
            try:
                ended = await self.link.has_ended(self.instance)
            except NpucallError:  # the client was closed
                ended = False
        self._observer.broke(self, calls, failure, ended=ended)

    def _tell(self, call: SentCall) -> None:
        """Notes what sent a call, and whereto."""
        call.attempts.instance = self.instance
        if self._many is None:
            call.attempts.sent = self._opened.authorization

    async def _read_all(self) -> NpucallError:
        opened, attempts = self._opened, self._attempts
        try:
            await self._know()
            with self.link.errors(0.0):
                attempts.sent = opened.authorization = await self.link.authorization()
                connection = await self.link.frames.taken(attempts)
                if connection is not None and not self._one_stream:
                    await self._read_frames(connection)
                    return Unreachable("frames: the connection has ended")
                opened.stream = self.link.open_stream(
                    "ExecuteStream",
                    self._writer.messages(opened),
                    attempts,
                    seconds=None,
                    ended=self._end,
                    connection=connection,
                )
                async for message in opened.stream:
                    self._has_heard = True
                    self._take(message)
        except NpucallError as error:
            return error
        return Unreachable("stream: the server ended it")

    async def _read_frames(self, connection: CallConnection) -> None:
        """Sends and reads frames on a connection until this is over. Raises what else ends it."""
        frames, opened = self.link.frames, self._opened
        many = opened.stream = ManyCalls(self.link, connection)
        try:
            await self._hand_over(many)
            while not opened.over:
                kind, call_id, message = await many.next_answer()
                self._has_heard = True
                with self._lock:
                    answered = self._open.pop(call_id, None)
                    self._room.notify()
                if answered is not None:
                    self._tell(answered)
                    self._observer.answered(answered, answer_in(answered, kind, message))
                    del answered
                self._end_if_left()
        except (OSError, EOFError) as error:
            raise frames.told(error, 0.0) from None
        finally:
            frames.end(connection)

    async def _hand_over(self, many: ManyCalls) -> None:
        """Has the calls sent there: first those that came before, then each by who makes it."""
        sent = set()
        while True:
            with self._lock:
                cancelled, calls = self._writer.take()
                if not (cancelled or calls):
                    self._many = many
                    return
            for call in calls:
                if call.id in self._open:
                    sent.add(call.id)
                    await many.send(call)
            for call_id in sent.intersection(cancelled):
                many.forget(call_id)

    async def _know(self) -> None:
        """Finds out to which process the stream goes, if the last one has ended."""
        link = self.link
        while link.instance is None and not self._opened.over:
            try:
                await link.ask(Attempts(Request(_ASK_SECONDS)))
            except (DeadlineError, Unreachable):
                if not link.waits:
                    raise
        self.instance = link.instance

    def _take(self, message: bytes) -> None:
        frames = [split_response_frame(frame) for frame in response_frames(message)]
        with self._lock:
            calls = [self._open.get(call_id) for call_id, _ in frames]
        outcomes = []
        for call, (_, frame) in zip(calls, frames, strict=True):
            outcome = None if call is None else _taken(call, frame)
            if call is not None and outcome is not None:
                outcomes.append((call, outcome))
        with self._lock:
            ended = [each for each in outcomes if self._open.pop(each[0].id, None) is not None]
            self._room.notify(len(ended))
        for call, outcome in ended:
            self._tell(call)
            self._observer.answered(call, outcome)
        self._end_if_left()


def _taken(call: SentCall, frame: ResponseFrame) -> Response | NpucallError | None:
    """How a call ends with this frame; None if it goes on."""
    try:
        return call.incoming.take(frame)
    except NpucallError as error:
        return error
