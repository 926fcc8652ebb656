"""``client.pipeline()``: calls in flight side by side, each with a future of its own."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from npucall.errors import CancelledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from npucall.declare.declaration import Operator
    from npucall.wire.messages import Response
    from npucall_client.arguments import BoundCall
    from npucall_client.calling import Options, Result

P = ParamSpec("P")
R = TypeVar("R")


class Calls(Protocol):
    """Where a pipeline sends its calls."""

    def send(
        self,
        call: BoundCall,
        timeout: float,
        request_id: str,
        done: Callable[[Response | Exception], object],
    ) -> Any:
        """Sends a call; ``done`` hears how it ended. Waits while too many are in flight."""

    def cancel(self, call: Any) -> None:
        """Ends what ``send`` answered."""

    def close(self) -> None:
        """Waits until every call has ended."""


class OneByOne:
    """Calls where there is no stream: each is computed when it is sent."""

    def __init__(self, execute: Callable[[BoundCall, float, str], Response]) -> None:
        self._execute = execute

    def send(
        self,
        call: BoundCall,
        timeout: float,
        request_id: str,
        done: Callable[[Response | Exception], object],
    ) -> None:
        """Computes a call."""
        try:
            outcome: Response | Exception = self._execute(call, timeout, request_id)
        except Exception as error:  # noqa: BLE001  # the call's own
            outcome = error
        done(outcome)

    def cancel(self, call: None) -> None:
        """It has ended already."""

    def close(self) -> None:
        """Nothing is left."""


class PendingCall(Future[R], Generic[R]):
    """A call of a pipeline: a future of what ``client.run`` answers."""

    def __init__(self) -> None:
        super().__init__()
        self._answer: Result | None = None
        self._cancel: Callable[[], None] = lambda: None
        self.set_running_or_notify_cancel()

    def answer(self, timeout: float | None = None) -> Result:
        """Waits as ``result`` does, and answers all that ``client.execute`` does."""
        self.result(timeout)
        assert self._answer is not None  # noqa: S101  # it has a result
        return self._answer

    def cancel(self) -> bool:
        """Ends the call: unless it was done, it raises ``npucall.errors.CancelledError``."""
        if self.done():
            return False
        self._cancel()
        return True


class Pipeline:
    """Sends calls without waiting for their answers. Leaving the context waits for all of them.

    Answers come in the order in which calls finish; errors are each call's own. A connection that
    breaks is opened again, and what had no answer is sent once more, as long as its timeout allows.
    Safe to use from several threads.
    """

    def __init__(
        self,
        calls: Calls,
        bind: Callable[..., tuple[BoundCall, Options]],
        read: Callable[[BoundCall, Response, int], Result],
    ) -> None:
        self._calls = calls
        self._bind = bind
        self._read = read
        self._ended = threading.Condition()
        self._in_flight: set[PendingCall[Any]] = set()
        self._finished: weakref.WeakValueDictionary[int, PendingCall[Any]]
        self._finished = weakref.WeakValueDictionary()
        self._count = 0
        self._closed = False

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
        self._closed = True
        self._calls.close()

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

        Arrays must not be changed until the call is done. Raises what is wrong with the arguments,
        DeadlineError where no place comes free within the call's timeout, and CancelledError once
        the pipeline is closed; all else is raised by ``result`` of what it answers.
        """
        start = perf_counter_ns()
        self._check_open()
        bound, options = self._bind(operator, args, kwargs)
        call: PendingCall[Any] = PendingCall()
        with self._ended:
            self._in_flight.add(call)
        try:
            sent = self._calls.send(
                bound,
                options.timeout,
                options.request_id,
                lambda outcome: self._end(call, bound, outcome, start),
            )
        except BaseException:
            with self._ended:
                self._in_flight.discard(call)
            raise
        call._cancel = lambda: self._calls.cancel(sent)  # noqa: SLF001  # its maker
        return call

    def as_completed(self) -> Iterator[PendingCall[Any]]:
        """Calls in the order in which they end, until none is in flight.

        Of those that ended before, the ones that you hold and that it did not give yet.
        """
        while True:
            with self._ended:
                self._ended.wait_for(lambda: self._finished or not self._in_flight)
                oldest = next(iter(self._finished.keys()), None)
                if oldest is None:
                    return
                call = self._finished.pop(oldest, None)
            if call is not None:
                yield call

    def _check_open(self) -> None:
        if self._closed:
            raise CancelledError(
                "pipeline: expected it open, found it closed; client.pipeline() opens another one"
            )

    def _end(
        self, call: PendingCall[Any], bound: BoundCall, outcome: Response | Exception, start: int
    ) -> None:
        if isinstance(outcome, Exception):
            call.set_exception(outcome)
        else:
            self._deliver(call, bound, outcome, start)
        with self._ended:
            self._in_flight.discard(call)
            self._finished[self._count] = call
            self._count += 1
            self._ended.notify_all()

    def _deliver(
        self, call: PendingCall[Any], bound: BoundCall, response: Response, start: int
    ) -> None:
        try:
            answer = self._read(bound, response, start)
        except Exception as error:  # noqa: BLE001  # raised by the call's result
            call.set_exception(error)
        else:
            call._answer = answer  # noqa: SLF001  # its maker
            call.set_result(answer.value)
