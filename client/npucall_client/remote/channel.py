"""A server at a target: the channel, its retries, and gRPC's errors made the contract's."""

from __future__ import annotations

import copy
import threading
import time
from typing import TYPE_CHECKING, Any

import grpc

from npucall.errors import (
    DeadlineError,
    NpucallError,
    ServerUnreachableError,
    SharedMemoryError,
    TooLargeError,
)
from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import Response, join_request, split_response
from npucall.wire.status import REQUEST_ID, RESERVATION
from npucall_client.calling import closed
from npucall_client.pipeline import OneByOne
from npucall_client.remote.failures import Sender, failure, lateness, unreachable
from npucall_client.remote.large_call import LargeCall
from npucall_client.remote.retry import repeated
from npucall_client.remote.server_limits import ServerLimits
from npucall_client.remote.service import ACCESS_SERVICE, OPTIONS, SERVICE, STREAM_OPTIONS, path_of
from npucall_client.remote.stream import CallStream
from npucall_client.remote.transfer import (
    message_of,
    place_nothing_in_chunks,
)
from npucall_client.reservations import RUNNING_SECONDS, Granted
from npucall_client.shared.memory import SharedMemories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_client.arguments import BoundCall
    from npucall_client.shared.memory import SharedMemory


class ChannelTransport:
    """Sends to a server. ``connect_timeout``: seconds that it may take to answer at first.

    ``stream_from``: bytes of storage from which a call travels in chunks.
    Raises ServerUnreachableError where nothing answers.
    """

    def __init__(self, target: str, connect_timeout: float, stream_from: int) -> None:
        self._target = target
        self._channel = grpc.insecure_channel(target, options=OPTIONS)
        self._streams = grpc.insecure_channel(target, options=STREAM_OPTIONS)
        self._closed = threading.Event()
        self._memories = SharedMemories()
        self._execute = self._method("Execute")
        self._plan = self._method("Plan")
        self._list_operators = self._method("ListOperators")
        self._get_operator = self._method("GetOperator")
        self._get_server_info = self._method("GetServerInfo")
        self._get_usage = self._method("GetUsage", ACCESS_SERVICE)
        self._get_activity = self._method("GetActivity", ACCESS_SERVICE)
        self._reserve = self._method("Reserve", ACCESS_SERVICE)
        self._renew = self._method("RenewReservation", ACCESS_SERVICE)
        self._release = self._method("ReleaseReservation", ACCESS_SERVICE)
        self._key = ""
        try:
            limits = self.server_info(connect_timeout).limits
        except DeadlineError as error:
            self.close()
            raise unreachable(target, connect_timeout) from error
        except BaseException:
            self.close()
            raise
        self._limits = ServerLimits(limits, stream_from)

    def execute(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        """One call, repeated while the server is unavailable and the timeout allows."""
        if not self._memories.regions:
            return self._run(call, timeout, request_id)
        end = time.monotonic() + timeout
        self._memories.place(call)
        try:
            return self._run(call, timeout, request_id)
        except SharedMemoryError:
            if not self._memories.withdraw(call):
                raise
        return self._run(call, max(0.0, end - time.monotonic()), request_id)

    def _run(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        if self._limits.travels_in_chunks(call):
            return self._execute_in_chunks(call, timeout, request_id)
        message = message_of(call)
        self._limits.check_message(call, len(message))
        end = time.monotonic() + timeout
        try:
            return split_response(self._send(self._execute, message, timeout, request_id))
        except TooLargeError as error:  # only the server can know how long its answer is
            if error.details.get("method") != "ExecuteStream" or not self._limits.stream_window:
                raise
        return self._execute_in_chunks(call, end - time.monotonic(), request_id)

    def plan(self, call: BoundCall, timeout: float, request_id: str) -> pb.PlanResponse:
        """Phase one of a call."""
        message = join_request(call.call, ())
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

    def usage(self, last_seconds: float, timeout: float) -> access.GetUsageResponse:
        """Who used the server how long."""
        request = access.GetUsageRequest(last_seconds=last_seconds).SerializeToString()
        data = self._send(self._get_usage, request, timeout)
        return access.GetUsageResponse.FromString(data)

    def activity(self, timeout: float) -> access.GetActivityResponse:
        """Who uses the server now."""
        data = self._send(self._get_activity, b"", timeout)
        return access.GetActivityResponse.FromString(data)

    def shared(self, nbytes: int, socket: str, timeout: float) -> SharedMemory:
        """Memory of the server's; ``socket``: where, unless it is where the server says."""

        def attempt(seconds: float) -> SharedMemory:
            ends = time.monotonic() + seconds
            info = self.server_info(seconds)
            path = socket or info.shared_memory_socket
            if not info.shared_memory_socket:
                raise SharedMemoryError(
                    "shared memory: expected a server that shares some, found none at "
                    f"{self._target}; its setting shared_memory (--shared-memory PATH) turns it on"
                )
            try:
                return self._memories.open(path, nbytes, ends - time.monotonic())
            except SharedMemoryError as error:
                self._check_same_server(info, error, ends - time.monotonic())
                raise

        return repeated(attempt, timeout, self.pause)

    def under(self, key: str) -> ChannelTransport:
        """The same connection, for calls under a reservation."""
        other = copy.copy(self)
        other._key = key  # noqa: SLF001  # of its own kind
        return other

    def reserve(self, seconds: float, wait: float, timeout: float) -> Granted:
        """Reserves the device; ``timeout``: seconds for the answer besides ``wait``."""
        ends = time.monotonic() + wait
        asks = wait + RUNNING_SECONDS + timeout

        def attempt(left: float) -> bytes:
            waits = max(0.0, ends - time.monotonic())
            request = access.ReserveRequest(seconds=seconds, wait_seconds=waits)
            return self._attempt(self._reserve, request.SerializeToString(), left, asks, None)

        answer = access.ReserveResponse.FromString(repeated(attempt, asks, self.pause))
        return Granted(answer.key, answer.ends_seconds, answer.renew_within_seconds)

    def renew(self, key: str, timeout: float) -> Granted:
        """Has a reservation go on."""
        request = access.RenewReservationRequest(key=key).SerializeToString()
        data = self._send(self._renew, request, timeout)
        answer = access.RenewReservationResponse.FromString(data)
        return Granted(key, answer.ends_seconds, answer.renew_within_seconds)

    def release(self, key: str, timeout: float) -> None:
        """Ends a reservation; without a key whatever there is."""
        request = access.ReleaseReservationRequest(key=key).SerializeToString()
        self._send(self._release, request, timeout)

    def _check_same_server(
        self, before: pb.GetServerInfoResponse, error: NpucallError, seconds: float
    ) -> None:
        """Raises what is repeated where a server went while its side socket was asked.

        A socket that is gone, refuses or closes says no more than that; who lives on meant it.
        """
        now = self.server_info(max(0.0, seconds))
        if now.server.instance != before.server.instance:
            raise ServerUnreachableError(
                f"shared memory: expected the server that was asked, found another one: {error}"
            ) from error

    def place(self, call: BoundCall) -> None:
        """Has what lies in shared memory stay there."""
        self._memories.place(call)

    def withdraw(self, call: BoundCall) -> bool:
        """Has everything travel, where the server does not know the memory; else False."""
        return self._memories.withdraw(call)

    def close(self) -> None:
        """Closes the channel; calls under way are cancelled."""
        self._closed.set()
        self._memories.close()
        self._streams.close()
        self._channel.close()

    def open_stream(self, frames: Iterator[bytes], timeout: float | None) -> Any:
        """Opens an ``ExecuteStream``: gRPC's call, which iterates over the frames that come."""
        method: Any = self._streams.stream_stream(path_of("ExecuteStream"))  # type: ignore[call-arg]
        return method(frames, timeout=timeout, metadata=self._metadata(), wait_for_ready=True)

    def calls(self) -> CallStream | OneByOne:
        """Calls of a pipeline; one after the other where the server has no streams."""
        self.check_open()
        if not self._limits.stream_window:
            return OneByOne(self.execute)
        return CallStream(self, self._limits.stream_window, self._limits.chunk_bytes)

    def _execute_in_chunks(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        """One call on a stream of its own, begun anew where the stream breaks."""
        place_nothing_in_chunks(call, self._limits.chunk_bytes)
        self._limits.check_room(call)

        def attempt(seconds: float) -> Response:
            large = LargeCall(call, request_id, self._limits.chunk_bytes)
            with self.errors(timeout):
                return large.run(self.open_stream, seconds)

        return repeated(attempt, timeout, self.pause)

    def _method(self, name: str, service: str = SERVICE) -> Callable[..., bytes]:
        method: Any = self._channel.unary_unary(path_of(name, service))  # type: ignore[call-arg]
        return method

    def _metadata(self, request_id: str = "") -> tuple[tuple[str, str], ...] | None:
        """What goes with a call, or with a stream."""
        pairs = (REQUEST_ID, request_id), (RESERVATION, self._key)
        return tuple(pair for pair in pairs if pair[1]) or None

    def _send(
        self, method: Callable[..., bytes], request: bytes, timeout: float, request_id: str = ""
    ) -> bytes:
        metadata = self._metadata(request_id)

        def attempt(seconds: float) -> bytes:
            return self._attempt(method, request, seconds, timeout, metadata)

        return repeated(attempt, timeout, self.pause)

    def _attempt(
        self,
        method: Callable[..., bytes],
        request: bytes,
        seconds: float,
        timeout: float,
        metadata: tuple[tuple[str, str], ...] | None,
    ) -> bytes:
        """One attempt; ``timeout`` is that of all, for errors.

        Waiting for a channel that is ready makes a restart of the server cost time, not attempts.
        """
        with self.errors(timeout):
            return method(request, timeout=seconds, metadata=metadata, wait_for_ready=True)

    def errors(self, timeout: float) -> InOurErrors:
        """A context that has gRPC's errors become the contract's."""
        return InOurErrors(self, timeout)

    def check_open(self) -> None:
        """Raises CancelledError once the client is closed."""
        if self._closed.is_set():
            raise closed()

    def pause(self, seconds: float) -> None:
        """Waits between two attempts. Raises CancelledError once the client is closed."""
        if self._closed.wait(seconds):
            raise closed()

    def failure(self, error: Any, timeout: float) -> NpucallError:
        """What gRPC's error means."""
        trailers = error.trailing_metadata()
        return failure(self._sender(), error.code(), error.details(), trailers, timeout)

    def lateness(self, timeout: float) -> NpucallError:
        """What a call that got no answer in time raises."""
        return lateness(self._sender(), timeout)

    def _sender(self) -> Sender:
        is_closed = self._closed.is_set()
        return Sender(self._target, not is_closed and self._connected(), is_closed)

    def _connected(self) -> bool:
        # What gRPC has for it in public answers later, in a thread that breaks when the channel is
        # closed meanwhile.
        ready = grpc.ChannelConnectivity.READY.value[0]
        channels: list[Any] = [self._channel, self._streams]
        cores = [channel._channel for channel in channels]  # noqa: SLF001
        return ready in [core.check_connectivity_state(False) for core in cores]  # noqa: FBT003  # do not connect


class InOurErrors:
    """Has gRPC's errors become the contract's. What is closed is not used.

    A class, since a generator takes four times as long, and every call needs it.
    """

    __slots__ = ("_channel", "_timeout")

    def __init__(self, channel: ChannelTransport, timeout: float) -> None:
        self._channel, self._timeout = channel, timeout

    def __enter__(self) -> None:
        self._channel.check_open()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, grpc.RpcError):
            raise self._channel.failure(error, self._timeout) from error
        if isinstance(error, ValueError):  # gRPC's, of a channel that was closed this moment
            self._channel.check_open()
