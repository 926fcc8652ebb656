"""The calls of a pipeline that are in flight: on which stream each is, when it is sent again.

Whether it is sent again ``attempts`` decides, as for every other call.
"""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from npucall.errors import CancelledError, DeviceLostError, NpucallError, Repeat
from npucall_client.calls.arguments import BoundCall
from npucall_client.sending.attempts import PAUSES
from npucall_client.sending.execution import executed
from npucall_client.sending.follow_ups import MENDING, Next
from npucall_client.sending.stream import CallStream
from npucall_client.sending.writer import SentCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npucall.wire.messages import Response
    from npucall_client.sending.attempts import Where
    from npucall_client.sending.link import Link
    from npucall_client.sending.request import Request
    from npucall_client.sending.senders import Sender, Task
    from npucall_client.sending.writer import Done

_NO_CALL = BoundCall("")
_AT_A_TIME = 16
"""At most so many calls are sent again at the same time."""


def _nobody(_: object) -> None:
    pass


class PipelineCalls:
    """Calls on streams to ``where``: one for each server, session and reservation."""

    def __init__(self, where: Where[Link], sender: Sender) -> None:
        self._where, self._sender = where, sender
        self._lock = threading.Lock()
        self._changed = sender.condition(self._lock)
        self._streams: dict[tuple[Link, str, str, bool], CallStream] = {}
        """Those that take calls."""
        self._open: set[CallStream] = set()
        self._flight: set[SentCall] = set()
        self._again = sender.workers(_AT_A_TIME, "npucall-repeats")
        self._task: Task | None = None
        self._looks = math.inf
        """When the task looks at the calls again."""
        self._closing = False

    async def send(self, request: Request, done: Done) -> SentCall:
        """Sends a call once a stream has room.

        Raises DeadlineError if none has room in time, CancelledError once this is closed.
        """
        call = SentCall(request, done)
        await call.attempts.begin()
        with self._lock:
            if self._closing:
                raise CancelledError("the pipeline is closed; client.pipeline() opens another one")
            self._flight.add(call)
            if self._task is None:  # it belongs to the span in which its first call was sent
                self._task = self._sender.start(self._watch, "npucall-pipeline")
        try:
            await self._sent(call)
        except BaseException as error:
            self._give_back(call, error)
            with self._lock:
                self._flight.discard(call)
                self._changed.notify_all()
            raise
        return call

    def cancel(self, call: SentCall) -> None:
        """Ends a call; the server hears of it."""
        self._give_up(call, CancelledError("the caller cancelled the call"))

    async def close(self) -> None:
        """Waits until every call has ended."""
        with self._lock:
            self._closing = True
            self._changed.notify_all()
            await self._changed.wait_for(lambda: not self._flight)
            streams = list(self._open)
        for stream in streams:
            await stream.close()
        if self._task is not None:
            await self._task.join()
        await self._again.close()

    async def _sent(self, call: SentCall) -> None:
        """Sends a call to a server. If none takes it, what follows is known."""
        call.waits, attempts = False, call.attempts
        try:
            attempts.server = server = self._where.only or await attempts.taken(self._where)
        except NpucallError as error:
            self._failed(call, error)
            return
        if not server.limits.stream_window:
            self._give_back(call, None)
            await self._alone(call)
            return
        while not await (stream := self._stream(server, call)).send(call):
            if (failure := await stream.failure_of(call)) is not None:
                self._failed(call, failure)
                return
        with self._lock:
            if attempts.ends < self._looks:
                self._changed.notify_all()

    async def _alone(self, call: SentCall) -> None:
        """Sends a call without a stream, since its server has none."""
        try:
            outcome: Any = await call.attempts.run(self._where, executed)
        except Exception as error:  # noqa: BLE001  # the call's own
            outcome = error
        self._finish(call, outcome)

    def _stream(self, server: Link, call: SentCall) -> CallStream:
        """Where a call goes. Those of a session keep their order; in frames, large ones do not."""
        request = call.attempts.request
        session = request.session_id
        one_stream = bool(session) or (
            server.frames.is_offered and server.limits.travels_in_chunks(call.call, in_frames=True)
        )
        key = server, session, request.reservation, one_stream
        with self._lock:
            stream = self._streams.get(key)
            if stream is None or not stream.takes_calls:
                of_all = request._replace(request_id="", held=(), call=_NO_CALL)
                stream = self._streams[key] = CallStream(
                    server, of_all, self, one_stream=one_stream
                )
                self._open.add(stream)
        return stream

    # --- How a call ends --------------------------------------------------------------------------

    def answered(self, call: SentCall, outcome: Response | NpucallError) -> None:
        """See ``stream.CallObserver``."""
        if not isinstance(outcome, NpucallError):
            self._give_back(call, None)
            self._finish(call, outcome)
            return
        if outcome.repeat in (Repeat.HERE, Repeat.FEW_TIMES):
            call.stream.leave()
        self._failed(call, outcome, ended=isinstance(outcome, DeviceLostError))

    def broke(
        self, stream: CallStream, calls: Sequence[SentCall], error: NpucallError, *, ended: bool
    ) -> None:
        """See ``stream.CallObserver``. What was refused there need not wait any longer."""
        with self._lock:
            self._open.discard(stream)
            for key in [key for key, each in self._streams.items() if each is stream]:
                del self._streams[key]
            soon = time.monotonic() + PAUSES[0]
            for call in self._flight:
                if call.stream is stream and call.due < math.inf:
                    call.due = min(call.due, soon)
            self._changed.notify_all()
        for call in calls:
            self._failed(call, error, ended=ended and call.is_sent)

    def _failed(self, call: SentCall, error: NpucallError, *, ended: bool = False) -> None:
        """A call has not got its answer: sends it again, or ends it."""
        where, attempts = self._where, call.attempts
        self._give_back(call, error)
        step = attempts.next(where, error)
        if isinstance(error, CancelledError) or step is Next.NEVER:
            self._finish(call, error)
        elif step in MENDING:
            call.waits = False
            self._again.submit(partial(self._mended, call, step, error))
        elif poisoned := attempts.lose(attempts.server.target, ended=True) if ended else None:
            poisoned.__cause__ = error
            self._finish(call, poisoned)
        elif (pause := attempts.pause(where, step, error)) is None:
            self._finish(call, error)
        else:
            with self._lock:
                call.due, call.waits = time.monotonic() + pause, True
                self._changed.notify_all()

    async def _mended(self, call: SentCall, step: Next, error: NpucallError) -> None:
        try:
            if await call.attempts.mend(step, error, call.attempts.server):
                await self._sent(call)
            else:
                self._finish(call, error)
        except Exception as failure:  # noqa: BLE001  # the call's own; warnings may be errors
            self._finish(call, failure)

    async def _resent(self, call: SentCall) -> None:
        if call not in self._flight:
            return  # it was cancelled meanwhile
        try:
            await self._sent(call)
        except Exception as error:  # noqa: BLE001  # the call's own
            self._give_back(call, error)
            self._finish(call, error)

    def _give_back(self, call: SentCall, error: BaseException | None) -> None:
        if self._where.only is None:
            self._where.give_back(call.attempts, error)

    def _give_up(self, call: SentCall, error: NpucallError) -> None:
        """Its caller no longer waits for a call."""
        if call.stream is not None and call.stream.forget(call):
            self._give_back(call, error)
        self._finish(call, error)

    def _finish(self, call: SentCall, outcome: Response | Exception) -> None:
        """Tells the caller how a call ended; only the first time counts."""
        with self._lock:
            if call not in self._flight:
                return
            self._flight.discard(call)
            if self._closing and not self._flight:
                self._changed.notify_all()
        done, call.done = call.done, _nobody  # the call must not keep its waiter in memory
        done(outcome)

    # --- The clock --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Ends calls that are late, and sends others again when they are due."""
        while True:
            with self._lock:
                if self._closing and not self._flight:
                    return
                now = time.monotonic()
                waiting = [call for call in self._flight if call.waits]
                due = [call for call in waiting if call.due <= now]
                late = [c for c in waiting if c.due == math.inf and c.attempts.ends <= now]
                for call in due:
                    call.due, call.waits = math.inf, False
                if not (late or due):
                    times = (min(call.due, call.attempts.ends) for call in waiting)
                    self._looks = min(times, default=math.inf)
                    await self._changed.wait(self._looks - now if waiting else None)
                    self._looks = -math.inf
            for call in late:
                timeout = call.attempts.request.timeout
                self._give_up(call, call.stream.link.lateness(timeout))
            for call in due:
                self._again.submit(partial(self._resent, call))
