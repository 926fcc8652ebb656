"""What every method shares: request id, log line, exception -> status. No service has its own."""

from __future__ import annotations

import itertools
import time
import traceback
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, TypeVar

import grpc

from npucall.errors import BusyError, InternalError, NpucallError, OutOfMemoryError
from npucall.limits import (
    MAX_NAME_BYTES,
    MAX_REQUEST_ID_CHARACTERS,
    MAX_TEXT_BYTES,
    MAX_TRACEBACK_CHARACTERS,
)
from npucall.texts import cut, middle_cut, retry_in
from npucall.wire import status
from npucall.wire.status import TRACEPARENT
from npucall_server import retries
from npucall_server.access.callers import UnaryCaller
from npucall_server.access.guard import check_method
from npucall_server.accounts.ledger import Ledger
from npucall_server.telemetry.log import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from npucall.wire.replies import ServerIdentity
    from npucall_server.access.callers import Caller
    from npucall_server.access.guard import Guard
    from npucall_server.carriers.peers import Peers
    from npucall_server.telemetry.log import Log

    RpcMethodHandler: TypeAlias = grpc.RpcMethodHandler[bytes, bytes]

A = TypeVar("A")
R = TypeVar("R")

_TRACEPARENT_CHARACTERS = 55


class Method(Protocol):
    """A method of a service: bytes of the request in, bytes of the response out."""

    def __call__(self, request: bytes, record: Record, caller: Caller, /) -> bytes:
        """Raises NpucallError; anything else that it raises is a bug."""


class StreamMethod(Protocol):
    """A method of streams: messages of frames in, and out."""

    def __call__(
        self, messages: Iterator[bytes], caller: UnaryCaller, handling: Handling, /
    ) -> Iterator[bytes]:
        """An exception ends the stream. Records and errors of its calls go through ``handling``."""


class Exchange(Protocol):
    """A method whose bytes travel in chunks in one direction: messages in, messages out."""

    def __call__(
        self, messages: Iterator[bytes], record: Record, caller: UnaryCaller, handling: Handling, /
    ) -> Iterator[bytes]:
        """Raises NpucallError; anything else that it raises is a bug."""


class Handling:
    """Turns methods into gRPC handlers, and cuts peers that make no progress.

    A method with one request is registered with gRPC as a method with a stream of requests. Only
    then gRPC hands the call over before its message has come, and reads the message when asked to.
    Ordinary clients notice no difference.
    """

    def __init__(
        self,
        identity: ServerIdentity,
        log: Log,
        peers: Peers,
        guard: Guard,
        watchers: Sequence[Callable[[Record], object]] = (),
    ) -> None:
        """``watchers`` get the record of every call too. They must not raise."""
        self.peers, self.guard = peers, guard
        self._identity = identity
        self._watchers = (log.call, *watchers)
        self._numbers = itertools.count(1)

    def unary(
        self,
        name: str,
        method: Method,
        room: Ledger,
        threads: ThreadPoolExecutor | None = None,
    ) -> RpcMethodHandler:
        """The handler of a method with one request, from bytes to bytes.

        ``room``: for messages on their way in. ``threads``: for the calls; None: the server's.
        """

        def handle(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            start = time.perf_counter_ns()
            caller = UnaryCaller(context)
            record = self.record(name, caller, 0)
            try:
                self._identify(name, caller, context)
                record.tenant, record.caller = caller.identity.tenant, caller.identity.name
                request = [self.peers.message(messages, caller, room)]
                start = time.perf_counter_ns()
                record.request_bytes = len(request[0])
                response = method(request.pop(), record, caller)  # the method owns it from here on
                record.response_bytes = len(response)
            except grpc.RpcError:
                record.reason, record.message = "CANCELLED", "the caller's message did not arrive"
                raise
            except Exception as error:  # noqa: BLE001  # the one place where a bug becomes an answer
                _abort(self.failure(error, record), context)
            finally:
                record.total_ns = time.perf_counter_ns() - start
                self.log(record)
            self.peers.read_answer(caller)
            return response

        return grpc.stream_unary_rpc_method_handler(on(threads, handle) if threads else handle)

    def stream(self, name: str, method: StreamMethod) -> RpcMethodHandler:
        """The handler of a method of streams."""

        def handle(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            start = time.perf_counter_ns()
            caller = UnaryCaller(context)
            try:
                self._identify(name, caller, context)
                yield from method(messages, caller, self)
            except Exception as error:  # noqa: BLE001  # as above
                record = self.record(name, caller, 0)
                failure = self.failure(error, record)
                record.total_ns = time.perf_counter_ns() - start
                self.log(record)
                _abort(failure, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    def exchange(self, name: str, method: Exchange) -> RpcMethodHandler:
        """The handler of a method whose bytes travel in chunks."""

        def handle(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            start = time.perf_counter_ns()
            caller = UnaryCaller(context)
            record = self.record(name, caller, 0)
            try:
                self._identify(name, caller, context)
                record.tenant, record.caller = caller.identity.tenant, caller.identity.name
                yield from method(messages, record, caller, self)
            except (grpc.RpcError, GeneratorExit):
                record.reason, record.message = "CANCELLED", f"the caller of {name} disconnected"
                raise
            except Exception as error:  # noqa: BLE001  # as above
                _abort(self.failure(error, record), context)
            finally:
                record.total_ns = time.perf_counter_ns() - start
                self.log(record)

        return grpc.stream_stream_rpc_method_handler(handle)

    def _identify(self, method: str, caller: UnaryCaller, context: grpc.ServicerContext) -> None:
        """Finds out who calls. Raises UnauthenticatedError, or an error if the role is wrong."""
        caller.identity = self.guard.identify(caller.peer, caller.metadata, context)
        check_method(caller.identity, method)

    def record(self, method: str, caller: Caller, request_bytes: int) -> Record:
        """The record of a call. If the caller gave no request id, this process makes one."""
        name = caller.request_id[:MAX_REQUEST_ID_CHARACTERS]
        name = name or f"{self._identity.instance}-{next(self._numbers)}"
        who, span = caller.identity, str(caller.metadata.get(TRACEPARENT, ""))
        return Record(
            method, name, caller.peer, who.tenant, who.name, request_bytes=request_bytes,
            traceparent=span[:_TRACEPARENT_CHARACTERS],
        )  # fmt: skip

    def log(self, record: Record) -> None:
        """A call has been answered: writes its line, and gives its record to the watchers."""
        for watcher in self._watchers:
            watcher(record)

    def failure(self, error: Exception, record: Record) -> NpucallError:
        """The error that a caller gets for an exception. The record gets it too."""
        if isinstance(error, MemoryError):
            error = OutOfMemoryError(
                "the server's process has too little memory for this call and its answer; send "
                "smaller calls, or lower memory_limit, so that the server refuses them earlier",
                phase="run",
                setting="memory_limit",
            )
        elif not isinstance(error, NpucallError):
            trace = "".join(traceback.format_exception(error))
            record.traceback = middle_cut(trace, MAX_TRACEBACK_CHARACTERS)
            error = InternalError(
                "a bug in the server; its log has the traceback under the request id of this call"
            )
        record.reason, record.message = error.reason, cut(str(error), MAX_NAME_BYTES)
        record.driver_message = cut(error.details.get("driver_message", ""), MAX_TEXT_BYTES)
        operator = record.operator or error.details.get("operator", "")
        record.operator = cut(operator, MAX_NAME_BYTES)
        error.details.setdefault("soc", self._identity.soc)
        error.details.setdefault("request_id", record.request_id)
        return error


def room_for_messages(count: int) -> Ledger:
    """Room for so many messages on their way in."""
    return Ledger(
        count,
        lambda *_: BusyError(
            f"the server is receiving {count} requests, as many as a share of memory_limit allows; "
            f"{retry_in(retries.MESSAGE_ROOM)}",
            retry_after=retries.MESSAGE_ROOM,
            limit=str(count),
            setting="memory_limit",
        ),
    )


def on(threads: ThreadPoolExecutor, behavior: Callable[[A, grpc.ServicerContext], R]) -> Any:
    """A method that gRPC runs on these threads."""

    def run(argument: A, context: grpc.ServicerContext) -> R:
        return behavior(argument, context)

    run.experimental_thread_pool = threads  # type: ignore[attr-defined]  # gRPC looks for it
    return run


def _abort(error: NpucallError, context: grpc.ServicerContext) -> NoReturn:
    details = status.to_status(error)
    context.set_trailing_metadata(((status.TRAILER, details.SerializeToString()),))
    context.abort(error.code, details.message)
