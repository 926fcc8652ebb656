"""A server at a target: the channel, its retries, and gRPC's errors made the contract's."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from npucall.errors import (
    CancelledError,
    DeadlineError,
    NpucallError,
    ServerUnreachableError,
    SharedMemoryError,
    TooLargeError,
)
from npucall.limits import CHUNK_BYTES, MAX_CHUNK_BYTES
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import Response, join_request, split_response
from npucall.wire.status import REQUEST_ID, TRAILER, from_status
from npucall_client.remote.call_stream import PAUSES, AtOnce, CallStream
from npucall_client.remote.large_call import LargeCall
from npucall_client.remote.transfer import is_chunked, message_of, size_of, travelling
from npucall_client.shared.memory import SharedMemories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client.arguments import BoundCall
    from npucall_client.shared.memory import SharedMemory

T = TypeVar("T")

_SERVICE: str = pb.DESCRIPTOR.services_by_name["OperatorService"].full_name
_GRPC_MAX = 2**31 - 1
_CHECKED_FROM = 1 << 20
"""Bytes from which a request is held against the server's limits before it is sent."""

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # every call is repeated here; gRPC's way of it costs each of them
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
]
_STREAM_OPTIONS = [
    *_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # a connection of their own: small calls do not wait
]
_FRAME_BYTES = 64
"""Most bytes of a chunk's frame besides its data."""


class ChannelTransport:
    """Sends to a server. ``connect_timeout``: seconds that it may take to answer at first.

    ``stream_from``: bytes of storage from which a call travels in chunks.
    Raises ServerUnreachableError where nothing answers.
    """

    def __init__(self, target: str, connect_timeout: float, stream_from: int) -> None:
        self._target = target
        self._stream_from = stream_from
        self._channel = grpc.insecure_channel(target, options=_OPTIONS)
        self._streams = grpc.insecure_channel(target, options=_STREAM_OPTIONS)
        self._closed = threading.Event()
        self._memories = SharedMemories()
        self._execute = self._method("Execute")
        self._plan = self._method("Plan")
        self._list_operators = self._method("ListOperators")
        self._get_operator = self._method("GetOperator")
        self._get_server_info = self._method("GetServerInfo")
        try:
            self._limits = self.server_info(connect_timeout).limits
        except DeadlineError as error:
            self.close()
            raise self._unreachable(connect_timeout) from error
        except BaseException:
            self.close()
            raise

    def execute(self, request: BoundCall, timeout: float, request_id: str) -> Response:
        """One call, repeated while the server is unavailable and the timeout allows."""
        if not self._memories.leases:
            return self._run(request, timeout, request_id)
        end = time.monotonic() + timeout
        self._memories.place(request)
        try:
            return self._run(request, timeout, request_id)
        except SharedMemoryError:
            if not self._memories.withdraw(request):
                raise
        return self._run(request, max(0.0, end - time.monotonic()), request_id)

    def _run(self, request: BoundCall, timeout: float, request_id: str) -> Response:
        if self._travels_in_chunks(request):
            return self._execute_in_chunks(request, timeout, request_id)
        message = message_of(request)
        if len(message) >= _CHECKED_FROM:
            self._check_size(request, len(message))
        end = time.monotonic() + timeout
        try:
            return split_response(self._send(self._execute, message, timeout, request_id))
        except TooLargeError as error:  # only the server can know how long its answer is
            if error.details.get("method") != "ExecuteStream" or not self._limits.stream_window:
                raise
        return self._execute_in_chunks(request, end - time.monotonic(), request_id)

    def plan(self, request: BoundCall, timeout: float, request_id: str) -> pb.PlanResponse:
        """Phase one of a call."""
        message = join_request(request.call, ())
        return pb.PlanResponse.FromString(self._send(self._plan, message, timeout, request_id))

    def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        """What the server lists."""
        data = self._send(self._list_operators, b"", timeout)
        return list(pb.ListOperatorsResponse.FromString(data).operators)

    def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        """One operator of the server."""
        request = pb.GetOperatorRequest(operator=name, variant=variant).SerializeToString()
        data = self._send(self._get_operator, request, timeout)
        return pb.GetOperatorResponse.FromString(data).operator

    def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        """What the server is."""
        data = self._send(self._get_server_info, b"", timeout)
        return pb.GetServerInfoResponse.FromString(data)

    def shared(self, nbytes: int, socket: str, timeout: float) -> SharedMemory:
        """Memory of the server's; ``socket``: where, unless it is where the server says."""
        path = self.server_info(timeout).shared_memory_socket
        if not path:
            raise SharedMemoryError(
                f"shared memory: expected a server that shares some, found none at {self._target}; "
                "its setting shared_memory (--shared-memory PATH) turns it on"
            )
        return self._memories.open(socket or path, nbytes, timeout)

    def place(self, request: BoundCall) -> None:
        """Has what lies in shared memory stay there."""
        self._memories.place(request)

    def withdraw(self, request: BoundCall) -> bool:
        """Has everything travel, where the server does not know the memory; else False."""
        return self._memories.withdraw(request)

    def close(self) -> None:
        """Closes the channel; calls under way are cancelled."""
        self._closed.set()
        self._memories.close()
        self._streams.close()
        self._channel.close()

    def open_stream(self, frames: Iterator[bytes], timeout: float | None) -> Any:
        """Opens an ``ExecuteStream``: gRPC's call, which iterates over the frames that come."""
        if self._closed.is_set():
            raise _closed()
        method: Any = self._streams.stream_stream(f"/{_SERVICE}/ExecuteStream")  # type: ignore[call-arg]
        return method(frames, timeout=timeout, wait_for_ready=True)

    def calls(self) -> CallStream | AtOnce:
        """Calls of a pipeline; one after the other where the server has no streams."""
        if not self._limits.stream_window:
            return AtOnce(self.execute)
        return CallStream(self, self._limits.stream_window, self._chunk_bytes())

    def _chunk_bytes(self) -> int:
        """What the server wishes, as far as its messages and the contract allow it."""
        most = self._limits.max_message_bytes or _GRPC_MAX
        wish = self._limits.chunk_bytes or CHUNK_BYTES
        return min(wish, MAX_CHUNK_BYTES, max(1, most - _FRAME_BYTES))

    def _travels_in_chunks(self, request: BoundCall) -> bool:
        """Whether a call gets a stream of its own.

        Its request does not travel in chunks where only its answer could be too long for a message.
        """
        if not self._limits.stream_window:
            return False
        size = size_of(request)
        if size >= self._stream_from or self._is_too_long(request, size):
            return True
        if request.shared is None or is_chunked(request, self._chunk_bytes()):
            return False
        return self._is_too_long(request, sum(map(len, request.storage.values())))

    def _is_too_long(self, request: BoundCall, size: int) -> bool:
        """Whether a call of so many bytes of storage has no room in a message."""
        message = size + len(request.call) + _FRAME_BYTES * (1 + len(request.storage))
        return message > (self._limits.max_message_bytes or _GRPC_MAX)

    def _execute_in_chunks(self, request: BoundCall, timeout: float, request_id: str) -> Response:
        """One call on a stream of its own, begun anew where the stream breaks."""
        if is_chunked(request, self._chunk_bytes()):
            request.shared = None  # no part of it can be named in chunks
        self._check_room(request)

        def attempt(seconds: float) -> Response:
            call = LargeCall(request, request_id, self._chunk_bytes())
            return call.run(self.open_stream, seconds)

        return self._repeated(attempt, timeout)

    def _repeated(self, attempt: Callable[[float], T], timeout: float) -> T:
        """What an attempt gives, made again while the server is unavailable and the timeout allows.

        A call has no side effects, so it may be repeated whatever happened.
        """
        end = time.monotonic() + timeout
        for pause in (*PAUSES, math.inf):
            # No error has a name beyond its block: its traceback would keep it, and the tensors.
            try:
                return attempt(max(0.0, end - time.monotonic()))
            except grpc.RpcError as error:
                if not _may_repeat(self.failure(error, timeout), pause, end):
                    raise self.failure(error, timeout) from error
            except NpucallError as error:
                if not _may_repeat(error, pause, end):
                    raise
            if self._closed.wait(pause):
                raise _closed()
        raise AssertionError  # no end is behind the last of the pauses

    def _method(self, name: str) -> Callable[..., bytes]:
        method: Callable[..., bytes] = self._channel.unary_unary(f"/{_SERVICE}/{name}")  # type: ignore[call-arg]
        return method

    def _send(
        self, method: Callable[..., bytes], request: bytes, timeout: float, request_id: str = ""
    ) -> bytes:
        metadata = ((REQUEST_ID, request_id),) if request_id else None

        def attempt(seconds: float) -> bytes:
            # Waiting for a channel that is ready makes a restart of the server cost time, not
            # attempts.
            return method(request, timeout=seconds, metadata=metadata, wait_for_ready=True)

        return self._repeated(attempt, timeout)

    def failure(self, error: Any, timeout: float) -> NpucallError:
        """The error that the server raised, or what gRPC's own means."""
        trailers = dict(error.trailing_metadata() or ())
        known: NpucallError = from_status(error.code(), error.details(), trailers.get(TRAILER))
        if TRAILER not in trailers:
            if isinstance(known, DeadlineError):
                return self.lateness(timeout)
            if isinstance(known, CancelledError) and not self._closed.is_set():
                # So gRPC answers what a server that goes down had not begun; nobody here asked.
                return ServerUnreachableError(
                    f"call: expected an answer of the server at {self._target}, found that it "
                    "ended the call without one, as a server that goes down does"
                )
        return known

    def lateness(self, timeout: float) -> NpucallError:
        """What a call that got no answer in time raises."""
        if not self._connected():
            return self._unreachable(timeout)
        return DeadlineError(f"call: its timeout of {timeout:g} s ended")

    def _connected(self) -> bool:
        # What gRPC has for it in public answers later, in a thread that breaks when the channel is
        # closed meanwhile.
        ready = grpc.ChannelConnectivity.READY.value[0]
        channels: list[Any] = [self._channel, self._streams]
        cores = [channel._channel for channel in channels]  # noqa: SLF001
        return ready in [core.check_connectivity_state(False) for core in cores]  # noqa: FBT003  # do not connect

    def _unreachable(self, seconds: float) -> ServerUnreachableError:
        return ServerUnreachableError(
            f"target: expected a server at {self._target}, found none in {seconds:g} s; "
            "start one with npucall-server, or mend the target (NPUCALL_TARGET)"
        )

    def _check_size(self, request: BoundCall, size: int) -> None:
        limits = self._limits
        room = {
            "max_message_bytes": min(limits.max_message_bytes or _GRPC_MAX, _GRPC_MAX),
            "memory_limit": limits.memory_limit or _GRPC_MAX,
        }
        setting, limit = min(room.items(), key=lambda item: item[1])
        if size > limit:
            raise _too_large(request, size, limit, setting)

    def _check_room(self, request: BoundCall) -> None:
        """A call in chunks may be larger than a message, not larger than the memory."""
        size, limit = size_of(request), self._limits.memory_limit
        if limit and size > limit:
            raise _too_large(request, size, limit, "memory_limit")


def _may_repeat(error: NpucallError, pause: float, end: float) -> bool:
    """Not where the pause is too long: better told now what is wrong than late later."""
    return error.code is grpc.StatusCode.UNAVAILABLE and time.monotonic() + pause < end


def _closed() -> CancelledError:
    return CancelledError("call: the client was closed")


def _too_large(request: BoundCall, size: int, limit: int, setting: str) -> TooLargeError:
    name, data = max(travelling(request).items(), key=lambda item: len(item[1]))
    return TooLargeError(
        f"request: expected at most {limit} bytes, the server's {setting}, found {size}; "
        f"the largest tensor is {name} with {len(data)}",
        parameter=name,
        limit=str(limit),
        setting=setting,
    )
