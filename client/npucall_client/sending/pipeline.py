"""``client.pipeline()``: calls in flight side by side, each with a future of its own."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from npucall.errors import CancelledError, NpucallError
from npucall_client.calls.hints import add_hint, warn
from npucall_client.calls.options import Result, result_of
from npucall_client.sending.senders import Sender, finished, shortened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from types import TracebackType

    from npucall.declare.declaration import Operator
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.request import Request

__tracebackhide__ = True  # in a red test pytest shows the line that called

P = ParamSpec("P")
R = TypeVar("R")


class Calls(Protocol):
    """Where a pipeline sends its calls."""

    async def send(self, request: Request, done: Callable[[Response | Exception], object]) -> Any:
        """Sends a call; ``done`` is told how it ended. Waits while too many are in flight."""

    def cancel(self, call: Any) -> None:
        """Ends the call that ``send`` returned."""

    async def close(self) -> None:
        """Waits until every call has ended."""


class OneByOne:
    """Calls where there is no stream: each is computed when it is sent."""

    def __init__(self, execute: Callable[[Request], Awaitable[Response]]) -> None:
        self._execute = execute

    async def send(self, request: Request, done: Callable[[Response | Exception], object]) -> None:
        """Computes a call."""
        try:
            outcome: Response | Exception = await self._execute(request)
        except Exception as error:  # noqa: BLE001  # the call's own
            outcome = error
        done(outcome)

    def cancel(self, call: None) -> None:
        """It has ended already."""

    async def close(self) -> None:
        """Nothing is left."""


class Pending(Protocol):
    """A call of a pipeline, as the pipeline sees it when the call ends."""

    answered: Result | None
    """All that ``client.execute`` answers."""
    end: Callable[[], object]
    """Ends the call where it is."""

    def done(self) -> bool:
        """Whether it has ended."""

    def set_result(self, result: Any) -> None:
        """It ended with this."""

    def set_exception(self, exception: Exception) -> None:
        """It failed with this."""


F = TypeVar("F", bound=Pending)


class PipelineBase(Generic[F]):
    """A pipeline without its public methods. ``made``: makes the future of a call."""

    def __init__(
        self,
        calls: Calls,
        bind: Callable[..., Awaitable[Request]],
        sender: Sender,
        made: Callable[[], F],
    ) -> None:
        self._calls = calls
        self._bind = bind
        self._made = made
        self._lock = threading.Lock()
        self._ended = sender.condition(self._lock)
        self._in_flight: set[F] = set()
        self._finished = finished = dict[weakref.ref[F], None]()
        """Calls that ended, in order, while somebody holds them: an ordinary dictionary, as one of
        weak values takes a tenth of a call."""
        self._forget: Callable[[weakref.ref[F]], object] = lambda call: finished.pop(call, None)
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._in_flight)} calls in flight"
        return f"<{type(self).__name__}: {state}>"

    async def _close(self) -> None:
        self._closed = True
        await self._calls.close()

    async def _submit(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> F:
        start = perf_counter_ns()
        self._check_open()
        request = await self._bind(operator, args, kwargs)
        bound = request.call
        call = self._made()
        with self._lock:
            self._in_flight.add(call)
        try:
            sent = await self._calls.send(
                request, lambda outcome: self._end(call, bound, outcome, start)
            )
        except BaseException:
            with self._lock:
                self._in_flight.discard(call)
            raise
        call.end = lambda: self._calls.cancel(sent)
        return call

    async def _next_completed(self) -> F | None:
        """The next call that ended and that it did not give yet; None if none is in flight."""
        while True:
            with self._lock:
                await self._ended.wait_for(lambda: self._finished or not self._in_flight)
                if not self._finished:
                    return None
                try:
                    oldest = next(iter(self._finished))
                except (RuntimeError, StopIteration):  # one was dropped at this moment
                    continue
                self._finished.pop(oldest, None)
            if (call := oldest()) is not None:
                return call

    def _check_open(self) -> None:
        if self._closed:
            raise CancelledError("the pipeline is closed; client.pipeline() opens another one")

    def _end(self, call: F, bound: BoundCall, outcome: Response | Exception, start: int) -> None:
        if not call.done():  # nobody has cancelled it
            _deliver(call, bound, outcome, start)
        with self._lock:
            self._in_flight.discard(call)
            self._finished[weakref.ref(call, self._forget)] = None
            self._ended.notify_all()


def _deliver(call: Pending, bound: BoundCall, outcome: Response | Exception, start: int) -> None:
    if isinstance(outcome, Exception):
        add_hint(outcome, bound)
        call.set_exception(shortened(outcome) if isinstance(outcome, NpucallError) else outcome)
        return
    try:
        answer = result_of(bound, outcome, start)
    except Exception as error:  # noqa: BLE001  # raised by the call's result
        call.set_exception(error)
    else:
        call.answered = answer
        call.set_result(answer.value)


def _nothing() -> None:
    pass


class PendingCall(Future[R], Generic[R]):
    """A call of a pipeline: a future of what ``client.run`` answers.

    It makes a condition only for somebody who waits: the condition of an ordinary future costs as
    much as half of a call. Who ends the call first says so, and looks then whether a condition is
    there; who waits makes it first, and looks then whether the call has ended.
    """

    answered: Result | None = None
    end: Callable[[], object] = staticmethod(_nothing)
    _result: Any = None
    _exception: BaseException | None = None

    def __init__(self) -> None:  # not that of the base, which makes a condition
        self._state = RUNNING
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]  # made when it is asked for
        """What those wait with who wait; the base's methods use it too."""
        made = self.__dict__.get("condition")
        return made or self.__dict__.setdefault("condition", threading.Condition())

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._state == FINISHED

    def set_result(self, result: R) -> None:
        """The call ended with this."""
        self._result = result
        self._finish()

    def set_exception(self, exception: BaseException | None) -> None:
        """The call failed with this."""
        self._exception = exception
        self._finish()

    def _finish(self) -> None:
        self._state = FINISHED
        if "condition" in self.__dict__:
            with self._condition:
                for waiter in self._waiters:
                    (waiter.add_exception if self._exception else waiter.add_result)(self)
                self._condition.notify_all()
        self._invoke_callbacks()  # type: ignore[attr-defined]  # those of the base

    def result(self, timeout: float | None = None) -> R:
        """Waits for the call, and returns and warns as ``client.run`` does."""
        try:
            is_there = self._state == FINISHED and self._exception is None
            value: R = self._result if is_there else super().result(timeout)
        except BaseException:
            del self  # the traceback of its own error would keep it, and its arrays
            raise
        if self.answered is not None:
            warn(self.answered.warnings)
        return value

    def answer(self, timeout: float | None = None) -> Result:
        """Waits as ``result`` does, and returns all that ``client.execute`` does."""
        try:
            super().result(timeout)
        except BaseException:
            del self  # likewise
            raise
        assert self.answered is not None  # noqa: S101  # it has a result
        return self.answered

    def cancel(self) -> bool:
        """Ends the call. Unless it was done, ``result`` raises npucall.errors.CancelledError."""
        if self.done():
            return False
        self.end()
        return True


class Pipeline(PipelineBase[PendingCall[Any]]):
    """Sends calls without waiting for their answers. Leaving the context waits for all of them.

    Answers come in the order in which calls finish; each call raises its own error. If the
    connection breaks, the pipeline opens it again, and sends the calls without an answer once more
    while their timeouts allow. Safe to use from several threads.
    """

    def __init__(
        self,
        calls: Calls,
        bind: Callable[..., Awaitable[Request]],
        sender: Sender,
    ) -> None:
        super().__init__(calls, bind, sender, PendingCall)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits until every call has ended, and closes the stream."""
        finished(self._close())

    @overload
    def submit(
        self, operator: Operator[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> PendingCall[R]: ...
    @overload
    def submit(
        self,
        operator: str,
        /,
        *args: Any,
        variant: str | None = None,
        outputs: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> PendingCall[Any]: ...
    def submit(self, operator: Any, /, *args: Any, **kwargs: Any) -> PendingCall[Any]:
        """Sends a call with the arguments of ``client.run``; waits while too many are in flight.

        Arrays must not be changed until the call is done. Raises the error for wrong arguments,
        DeadlineError if no place becomes free within the call's timeout, and CancelledError once
        the pipeline is closed. ``result`` of the call that it returns raises every other error.
        """
        return finished(self._submit(operator, args, kwargs))

    def as_completed(self) -> Iterator[PendingCall[Any]]:
        """Calls in the order in which they end, until none is in flight.

        Calls that ended before come first: those that you hold and that it did not give yet.
        """
        while (call := finished(self._next_completed())) is not None:
            yield call
