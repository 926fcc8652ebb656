"""Round every method: request id, log line, exception -> status. No service knows of these."""

from __future__ import annotations

import itertools
import time
import traceback
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn, Protocol

import grpc

from npucall.errors import InternalError, NpucallError, OutOfMemoryError
from npucall.limits import (
    MAX_NAME_BYTES,
    MAX_REQUEST_ID_CHARACTERS,
    MAX_TEXT_BYTES,
    MAX_TRACEBACK_CHARACTERS,
)
from npucall.texts import cut, middle_cut
from npucall.wire import status
from npucall_server.callers import UnaryCaller
from npucall_server.log import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from npucall.wire.replies import ServerIdentity
    from npucall_server.callers import Caller
    from npucall_server.log import Log


class Method(Protocol):
    """A method of a service: bytes of the request in, bytes of the response out."""

    def __call__(self, request: bytes, record: Record, caller: Caller, /) -> bytes:
        """Raises NpucallError; anything else that it raises is a bug."""


class StreamMethod(Protocol):
    """A method of streams: frames in, frames out."""

    def __call__(
        self, frames: Iterator[bytes], context: grpc.ServicerContext, handling: Handling, /
    ) -> Iterator[bytes]:
        """What it raises ends the stream. Records and errors of its calls are ``handling``'s."""


class Handling:
    """Turns methods into gRPC handlers."""

    def __init__(self, identity: ServerIdentity, log: Log) -> None:
        self._identity = identity
        self._log = log
        self._numbers = itertools.count(1)

    def service(
        self,
        name: str,
        methods: Mapping[str, Method],
        streams: Mapping[str, StreamMethod] = MappingProxyType({}),
    ) -> grpc.GenericRpcHandler[bytes, bytes]:
        """The gRPC service of that name, whose methods take and give bytes."""
        handlers = {key: self._handler(key, method) for key, method in methods.items()}
        handlers |= {key: self._stream_handler(key, method) for key, method in streams.items()}
        return grpc.method_handlers_generic_handler(name, handlers)

    def _handler(self, name: str, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            start = time.perf_counter_ns()
            caller = UnaryCaller(context)
            record = self.record(name, caller, len(request))
            try:
                response = method(request, record, caller)
                record.response_bytes = len(response)
            except Exception as error:  # noqa: BLE001  # the one place where a bug becomes an answer
                _abort(self.failure(error, record), context)
            finally:
                record.total_ns = time.perf_counter_ns() - start
                self.log(record)
            return response

        return grpc.unary_unary_rpc_method_handler(handle)

    def _stream_handler(
        self, name: str, method: StreamMethod
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        def handle(frames: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            start = time.perf_counter_ns()
            try:
                yield from method(frames, context, self)
            except Exception as error:  # noqa: BLE001  # as above
                record = self.record(name, UnaryCaller(context), 0)
                failure = self.failure(error, record)
                record.total_ns = time.perf_counter_ns() - start
                self.log(record)
                _abort(failure, context)

        return grpc.stream_stream_rpc_method_handler(handle)

    def record(self, method: str, caller: Caller, request_bytes: int) -> Record:
        """The record of a call; without a name of the caller's own it gets one of this process."""
        name = caller.request_id[:MAX_REQUEST_ID_CHARACTERS]
        name = name or f"{self._identity.instance}-{next(self._numbers)}"
        return Record(method, name, caller.peer, request_bytes=request_bytes)

    def log(self, record: Record) -> None:
        """Writes the line of a call that has been answered."""
        self._log.call(record)

    def failure(self, error: Exception, record: Record) -> NpucallError:
        """What a caller is told of an exception; the record gets it too."""
        if isinstance(error, MemoryError):
            error = OutOfMemoryError(
                "memory: expected enough for this call and its response, found less; a lower "
                "memory_limit makes the server refuse before it comes to this",
                phase="run",
                setting="memory_limit",
            )
        elif not isinstance(error, NpucallError):
            trace = "".join(traceback.format_exception(error))
            record.traceback = middle_cut(trace, MAX_TRACEBACK_CHARACTERS)
            error = InternalError("server: a bug; its log says more under the request id")
        record.reason, record.message = error.reason, cut(str(error), MAX_NAME_BYTES)
        record.driver_message = cut(error.details.get("driver_message", ""), MAX_TEXT_BYTES)
        operator = record.operator or error.details.get("operator", "")
        record.operator = cut(operator, MAX_NAME_BYTES)
        error.details.setdefault("soc", self._identity.soc)
        error.details.setdefault("request_id", record.request_id)
        return error


def _abort(error: NpucallError, context: grpc.ServicerContext) -> NoReturn:
    details = status.to_status(error)
    context.set_trailing_metadata(((status.TRAILER, details.SerializeToString()),))
    context.abort(error.code, details.message)
