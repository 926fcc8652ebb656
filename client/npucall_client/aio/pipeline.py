"""``client.pipeline()`` for asyncio: calls in flight side by side, each with a future."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from npucall.declare.declaration import Operator
from npucall_client.calls.hints import warn
from npucall_client.calls.options import Result
from npucall_client.sending.pipeline import Calls, PipelineBase
from npucall_client.sending.request import Request
from npucall_client.sending.senders import Sender, shortly

__tracebackhide__ = True  # in a red test pytest shows the line that called

P = ParamSpec("P")
R = TypeVar("R")


class PendingCall(asyncio.Future[R], Generic[R]):
    """A call of a pipeline: a future of what ``client.run`` answers."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: Result | None = None
        self.end: Callable[[], object] = lambda: None

    def __await__(self) -> Generator[Any, None, R]:
        """Waits for the call, and returns and warns as ``client.run`` does."""
        try:
            value: R = yield from super().__await__()
        except BaseException:
            del self  # the traceback of its own error would keep it, and its arrays
            raise
        if self.answered is not None:
            warn(self.answered.warnings)
        return value

    async def answer(self) -> Result:
        """Waits for the call, and returns all that ``client.execute`` does."""
        await _ended(self)
        assert self.answered is not None  # noqa: S101  # it has a result
        return self.answered

    def cancel(self, msg: Any | None = None) -> bool:
        """Ends the call, here and on its server. Tasks that await it get asyncio's CancelledError.

        If you cancel a task that awaits the call, that ends the call too.
        """
        if not super().cancel(msg):
            return False
        self.end()
        return True


@types.coroutine
def _ended(call: asyncio.Future[R]) -> Generator[Any, None, R]:
    """Waits for a call without a warning."""
    return (yield from asyncio.Future.__await__(call))


class Pipeline(PipelineBase[PendingCall[Any]]):
    """Sends calls without waiting for their answers. Leaving the context waits for all of them.

    A task that is cancelled in the context, or while it leaves it, cancels those without an answer.
    Answers come in the order in which calls finish; each call raises its own error. If the
    connection breaks, the pipeline opens it again, and sends the calls without an answer once more
    while their timeouts allow.
    """

    def __init__(
        self,
        calls: Calls,
        bind: Callable[..., Awaitable[Request]],
        sender: Sender,
    ) -> None:
        super().__init__(calls, bind, sender, PendingCall)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._cancel()
        await self.close()

    async def close(self) -> None:
        """Waits until every call has ended, and closes the stream."""
        try:
            await self._close()
        except asyncio.CancelledError:
            self._cancel()
            await self._close()
            raise

    def _cancel(self) -> None:
        with self._lock:
            left = [*self._in_flight]
        for call in left:
            call.cancel()

    @overload
    async def submit(
        self, operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> PendingCall[R]: ...
    @overload
    async def submit(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> PendingCall[Any]: ...
    async def submit(self, operator: Any, /, *args: Any, **kwargs: Any) -> PendingCall[Any]:
        """Sends a call with the arguments of ``client.run``; waits while too many are in flight.

        Arrays must not be changed until the call is done. Raises the error for wrong arguments,
        DeadlineError if no place becomes free within the call's timeout, and CancelledError of
        ``npucall.errors`` once the pipeline is closed. You get every other error when you await the
        call that it returns.
        """
        return await shortly(self._submit(operator, args, kwargs))

    async def as_completed(self) -> AsyncIterator[PendingCall[Any]]:
        """Calls in the order in which they end, until none is in flight.

        Calls that ended before come first: those that you hold and that it did not give yet.
        """
        while (call := await self._next_completed()) is not None:
            yield call
