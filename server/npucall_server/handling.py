"""Round every method: request id, log line, exception -> status. No service knows of these."""

from __future__ import annotations

import itertools
import time
import traceback
from typing import TYPE_CHECKING, NoReturn, Protocol

import grpc

from npucall import status
from npucall.errors import InternalError, NpucallError, OutOfMemoryError
from npucall_server.log import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall.replies import ServerIdentity
    from npucall_server.log import Log

_MAX_REQUEST_ID = 128


class Method(Protocol):
    """A method of a service: bytes of the request in, bytes of the response out."""

    def __call__(self, request: bytes, record: Record, context: grpc.ServicerContext, /) -> bytes:
        """Raises NpucallError; anything else that it raises is a bug."""


class Handling:
    """Turns methods into gRPC handlers."""

    def __init__(self, identity: ServerIdentity, log: Log) -> None:
        self._identity = identity
        self._log = log
        self._numbers = itertools.count(1)

    def service(
        self, name: str, methods: Mapping[str, Method]
    ) -> grpc.GenericRpcHandler[bytes, bytes]:
        """The gRPC service of that name, whose methods take and give bytes."""
        handlers = {key: self._handler(key, method) for key, method in methods.items()}
        return grpc.method_handlers_generic_handler(name, handlers)

    def _handler(self, name: str, method: Method) -> grpc.RpcMethodHandler[bytes, bytes]:
        def handle(request: bytes, context: grpc.ServicerContext) -> bytes:
            start = time.perf_counter_ns()
            record = Record(
                name, self._request_id(context), context.peer(), request_bytes=len(request)
            )
            try:
                response = method(request, record, context)
                record.response_bytes = len(response)
            except NpucallError as error:
                self._refuse(error, record, context)
            except MemoryError:
                short = OutOfMemoryError(
                    "memory: expected enough for this call and its response, found less; a lower "
                    "memory_limit makes the server refuse before it comes to this",
                    phase="run",
                    setting="memory_limit",
                )
                self._refuse(short, record, context)
            except Exception:  # noqa: BLE001  # the one place where a bug becomes an answer
                record.traceback = traceback.format_exc()
                bug = InternalError("server: a bug; its log says more under the request id")
                self._refuse(bug, record, context)
            finally:
                record.total_ns = time.perf_counter_ns() - start
                self._log.call(record)
            return response

        return grpc.unary_unary_rpc_method_handler(handle)

    def _refuse(
        self, error: NpucallError, record: Record, context: grpc.ServicerContext
    ) -> NoReturn:
        record.reason, record.message = error.reason, str(error)
        record.driver_message = error.details.get("driver_message", "")
        record.operator = record.operator or error.details.get("operator", "")
        error.details.setdefault("soc", self._identity.soc)
        error.details.setdefault("request_id", record.request_id)
        details = status.to_status(error)
        context.set_trailing_metadata(((status.TRAILER, details.SerializeToString()),))
        context.abort(error.code, details.message)

    def _request_id(self, context: grpc.ServicerContext) -> str:
        """The caller's own name for the call, or one that no other call of this process has."""
        for key, value in context.invocation_metadata():
            if key == status.REQUEST_ID and isinstance(value, str) and value:
                return value[:_MAX_REQUEST_ID]
        return f"{self._identity.instance}-{next(self._numbers)}"
