"""Pipelines over a pool: a stream for each member; a call without an answer goes to another one."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from npucall.errors import CancelledError, NpucallError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.course import Course
    from npucall_client.pool.transport import PoolTransport
    from npucall_client.sending.channel import ChannelTransport
    from npucall_client.sending.pipeline import Calls

    Outcome = Response | Exception

_REPEATING = 16
"""At most so many calls are under way for a second time."""


def _nobody(_: Outcome) -> None:
    pass


class PoolCall:
    """A call of a pipeline, on any member."""

    def __init__(self, call: BoundCall, course: Course, done: Callable[[Outcome], object]) -> None:
        self.call = call
        self.course = course
        self._done = done
        self._lock = threading.Lock()
        self.calls: Calls | None = None
        """The stream of the member where it is; that stream knows the call as ``sent``."""
        self.sent: Any = None

    def end(self, outcome: Outcome) -> None:
        """Tells the caller how it ended; only the first time counts."""
        with self._lock:
            done, self._done = self._done, _nobody  # the call must not keep its waiter in memory
        done(outcome)

    def cancel(self) -> None:
        """Ends it on its member: the caller no longer waits for it."""
        self.end(CancelledError("call: cancelled"))
        if self.calls is not None and self.sent is not None:
            self.calls.cancel(self.sent)


class PoolCalls:
    """Calls of a pipeline on the members of a pool."""

    def __init__(self, pool: PoolTransport) -> None:
        self._pool = pool
        self._streams: dict[ChannelTransport, Calls] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._repeats = pool.sender.workers(_REPEATING, "npucall-pool-repeats")

    async def send(
        self,
        call: BoundCall,
        timeout: float,
        request_id: str,
        done: Callable[[Outcome], object],
    ) -> PoolCall:
        """Sends a call on the stream of a member; waits while too many are in flight there."""
        course = self._pool.course(call, timeout, request_id)
        sent = PoolCall(call, course, done)
        if self._pool.is_pinned(call):
            self._submit(sent, lambda: self._pool.execute(call, timeout, request_id))
            return sent
        candidate = await self._pool.take(course)
        try:
            link = await self._pool.link_of(candidate, course.left)
            sent.calls = self._stream(link, candidate)
            sent.sent = await sent.calls.send(
                call, course.left, request_id, lambda outcome: self._end(sent, candidate, outcome)
            )
        except NpucallError as error:
            self._end(sent, candidate, error)
        except BaseException:
            self._pool.give_back(candidate, course, well=False)
            raise
        return sent

    def cancel(self, call: PoolCall) -> None:
        """Ends a call; its member hears of it."""
        call.cancel()

    async def close(self) -> None:
        """Waits until every call has ended."""
        with self._lock:
            self._closed = True
            streams = list(self._streams.values())
        for stream in streams:
            await stream.close()
        await self._repeats.close()

    def _stream(self, link: ChannelTransport, candidate: Candidate[ChannelTransport]) -> Calls:
        own = candidate.link or link
        with self._lock:
            if self._closed:
                raise CancelledError("the pipeline is closed; client.pipeline() opens another one")
            stream = self._streams.get(own)
            if stream is None:
                stream = self._streams[own] = link.calls()
        return stream

    def _end(
        self, sent: PoolCall, candidate: Candidate[ChannelTransport], outcome: Outcome
    ) -> None:
        """A member has answered the call, or has failed to."""
        self._pool.give_back(candidate, sent.course, well=not isinstance(outcome, Exception))
        if not isinstance(outcome, NpucallError) or isinstance(outcome, CancelledError):
            sent.end(outcome)
            return
        self._pool.note(candidate, outcome)  # at once, for the calls that follow

        async def again() -> Outcome:
            delay = await self._pool.failed(candidate, sent.course, outcome)
            if delay is None:
                return outcome
            await self._pool.wait(delay)
            return await self._pool.run(sent.course, sent.call)

        # As a call of its own, in another thread: this one belongs to the member's stream.
        self._submit(sent, again)

    def _submit(self, sent: PoolCall, execute: Callable[[], Awaitable[Outcome]]) -> None:
        async def run() -> None:
            try:
                sent.end(await execute())
            except Exception as error:  # noqa: BLE001  # the call's own
                sent.end(error)

        self._repeats.submit(run)
