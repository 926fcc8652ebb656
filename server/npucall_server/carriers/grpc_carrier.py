"""gRPC as a carrier: it makes handlers of methods, and callers of gRPC's contexts.

A method with one request is registered as one with a stream of requests. Only then gRPC hands the
call over before its message has come, and reads the message when asked to. Ordinary clients notice
no difference.
"""

from __future__ import annotations

from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar, cast

import grpc

from npucall.errors import CancelledError, NpucallError
from npucall.wire import status
from npucall_server.access.callers import went_away
from npucall_server.access.identity import anybody
from npucall_server.carriers.door import Visit
from npucall_server.carriers.peers import Visitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import ThreadPoolExecutor

    from npucall_server.accounts.ledger import Ledger
    from npucall_server.carriers.door import Door, Exchange, Method
    from npucall_server.carriers.peers import Peers

    RpcMethodHandler: TypeAlias = grpc.RpcMethodHandler[bytes, bytes]

_GRACE_SECONDS = 1.0
"""How long a call's message does not give way to others."""
A = TypeVar("A")
R = TypeVar("R")


class GrpcCaller(Visitor):
    """The caller of a method, or of a stream as a whole."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self.connection = context
        self.peer = context.peer()
        self.identity = anybody(self.peer)
        self.owner = self.identity.owner
        pairs = context.invocation_metadata()
        self.metadata = dict(pairs)
        if len(self.metadata) != len(pairs):  # two credentials are none that anybody knows
            every = [str(value) for name, value in pairs if name == status.AUTHORIZATION]
            self.metadata[status.AUTHORIZATION] = ", ".join(every)
        name = self.metadata.get(status.REQUEST_ID, "")
        self.request_id = name if isinstance(name, str) else ""
        self.time_remaining = context.time_remaining
        self.is_active = context.is_active
        self.add_callback = context.add_callback
        self.cancel = context.cancel

    def refuse(self, error: NpucallError) -> NoReturn:
        """Ends it with the status of the error, by gRPC's own exception."""
        context = cast("grpc.ServicerContext", self.connection)
        details = status.to_status(error)
        context.set_trailing_metadata(((status.TRAILER, details.SerializeToString()),))
        context.abort(error.code, details.message)


class GrpcCarrier:
    """Makes gRPC's handlers of methods: from bytes to bytes."""

    def __init__(self, door: Door, peers: Peers) -> None:
        self._door, self._peers = door, peers

    def unary(
        self,
        name: str,
        method: Method,
        room: Ledger,
        threads: ThreadPoolExecutor | None = None,
    ) -> RpcMethodHandler:
        """The handler of a method with one request, from bytes to bytes.

        ``room``: for messages on their way in. ``threads``: for the calls, which are listings;
        None: the server's.
        """
        door, peers = self._door, self._peers
        grace = 0.0 if threads else _GRACE_SECONDS

        def answer(messages: Iterator[bytes], caller: GrpcCaller, visit: Visit) -> bytes:
            try:
                request = [peers.message(messages, caller, room, grace)]
            except grpc.RpcError as error:
                _forget_frames(error)
                raise CancelledError("the caller's message did not arrive") from None
            record, visit.begun_ns = visit.record, perf_counter_ns()
            record.request_bytes = len(request[0])
            response = method(request.pop(), record, caller)  # it owns it from here on
            record.response_bytes = size = len(response)
            if threads:
                peers.answers_counted(caller, size, peers.listings)
            else:
                peers.answers(caller, size)
            return response

        def handle(messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            caller = GrpcCaller(context)
            with Visit(door, name, caller) as visit:
                try:
                    response = answer(messages, caller, visit)
                finally:
                    peers.ended[caller.peer] = perf_counter_ns()
            peers.finished[caller.peer] = visit.begun_ns
            return response

        return grpc.stream_unary_rpc_method_handler(on(threads, handle) if threads else handle)

    def exchange(self, name: str, method: Exchange, *, quiet: bool = False) -> RpcMethodHandler:
        """The handler of a method with many messages. ``quiet``: only a refusal has a log line."""
        door, peers = self._door, self._peers

        def handle(messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            caller = GrpcCaller(context)
            peers.enter(caller)
            with Visit(door, name, caller) as visit:
                visit.is_quiet = quiet
                try:
                    yield from peers.read(method(_sent(messages), visit.record, caller), caller)
                finally:
                    peers.ended[caller.peer] = perf_counter_ns()
            peers.finished[caller.peer] = visit.begun_ns

        return grpc.stream_stream_rpc_method_handler(handle)


def on(threads: ThreadPoolExecutor, behavior: Callable[[A, grpc.ServicerContext], R]) -> Any:
    """A method that gRPC runs on these threads."""

    def run(argument: A, context: grpc.ServicerContext) -> R:
        return behavior(argument, context)

    run.experimental_thread_pool = threads  # type: ignore[attr-defined]  # gRPC looks for it
    return run


@contextmanager
def refusals_told(context: grpc.ServicerContext) -> Iterator[None]:
    """Lets a method that is not npucall's own answer with the status of an NpucallError."""
    try:
        yield
    except NpucallError as error:
        context.abort(error.code, str(error))


def _sent(messages: Iterator[bytes]) -> Iterator[bytes]:
    """The messages of a caller. Raises CancelledError if it goes."""
    try:
        yield from messages
    except grpc.RpcError as error:
        _forget_frames(error)
        raise went_away() from None


def _forget_frames(error: grpc.RpcError) -> None:
    """The error is kept by gRPC's call, and its frames keep the call: it would never be freed."""
    error.__traceback__ = None
