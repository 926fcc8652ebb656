"""A server at a target: the channel, its retries, and gRPC's errors made the contract's."""

from __future__ import annotations

import copy
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from npucall.errors import (
    ConnectionLostError,
    DeadlineError,
    NpucallError,
    ServerUnreachableError,
    SharedMemoryError,
    TooLargeError,
    UnauthenticatedError,
)
from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import Response, join_request, split_response
from npucall.wire.status import AUTHORIZATION, REQUEST_ID, RESERVATION, SESSION, TRACEPARENT
from npucall_client import tracing
from npucall_client.calling import closed
from npucall_client.pipeline import OneByOne
from npucall_client.remote.channels import Connections
from npucall_client.remote.credentials import credential_of
from npucall_client.remote.failures import Sender, failure, lateness, unreachable
from npucall_client.remote.large_call import LargeCall
from npucall_client.remote.retry import repeated
from npucall_client.remote.server_limits import ServerLimits
from npucall_client.remote.service import MANY_FRAMES
from npucall_client.remote.sessions import RemoteSessions
from npucall_client.remote.stream import CallStream
from npucall_client.remote.streams import StreamsOfSessions
from npucall_client.remote.transfer import (
    message_of,
    place_nothing_in_chunks,
)
from npucall_client.reservations import RUNNING_SECONDS, Granted
from npucall_client.shared.memory import SharedMemories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from npucall_client.arguments import BoundCall
    from npucall_client.held import Home
    from npucall_client.pipeline import Calls
    from npucall_client.remote.large_call import StreamOpener
    from npucall_client.settings import ClientSettings
    from npucall_client.shared.memory import SharedMemory

T = TypeVar("T")

_NO_SPAN = nullcontext()
_LAST_TRY_SECONDS = 1.0
"""To hear why there is no connection."""
_NOBODY = "Connection refused"


class ChannelTransport:
    """Sends to the server that the settings name.

    Raises ServerUnreachableError where nothing answers within ``connect_timeout``, and ValueError
    for credentials that cannot be.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._target = settings.target
        self._credential = credential_of(settings)
        self._connections = Connections(settings)
        self._closed = threading.Event()
        self._memories = SharedMemories()
        self._key = ""
        self._home: Home | None = None
        self._spans = tracing.spans()
        seconds = settings.connect_timeout
        try:
            limits = self.server_info(seconds).limits
        except (DeadlineError, ServerUnreachableError) as error:
            why = self._why_unreachable()
            self.close()
            if isinstance(error, ConnectionLostError):
                raise
            raise unreachable(self._target, seconds, why) from error
        except BaseException:
            self.close()
            raise
        self._limits = ServerLimits(limits, settings.stream_from)

    def execute(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        """One call, repeated while the server is unavailable and the timeout allows."""
        if call.home is not self._home:
            return self.at(call.home).execute(call, timeout, request_id)
        with self._span("Execute", call):
            return self._executed(call, timeout, request_id)

    def _span(self, method: str, call: BoundCall) -> AbstractContextManager[None]:
        """Of one call, where somebody wants spans."""
        if self._spans is None:
            return _NO_SPAN
        return self._spans.call(method, call.operator, self._target)

    def _executed(self, call: BoundCall, timeout: float, request_id: str) -> Response:
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
            return split_response(self.send("Execute", message, timeout, request_id))
        except TooLargeError as error:  # only the server can know how long its answer is
            if error.details.get("method") != "ExecuteStream" or not self._limits.stream_window:
                raise
        return self._execute_in_chunks(call, end - time.monotonic(), request_id)

    def plan(self, call: BoundCall, timeout: float, request_id: str) -> pb.PlanResponse:
        """Phase one of a call."""
        message = join_request(call.call, ())
        with self._span("Plan", call):
            return pb.PlanResponse.FromString(self.send("Plan", message, timeout, request_id))

    def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        """What the server lists."""
        data = self.send("ListOperators", b"", timeout)
        return list(pb.ListOperatorsResponse.FromString(data).operators)

    def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        """One operator of the server."""
        request = pb.GetOperatorRequest(operator=name, variant=variant).SerializeToString()
        data = self.send("GetOperator", request, timeout)
        return pb.GetOperatorResponse.FromString(data).operator

    def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        """What the server is."""
        data = self.send("GetServerInfo", b"", timeout)
        return pb.GetServerInfoResponse.FromString(data)

    def usage(self, last_seconds: float, timeout: float) -> access.GetUsageResponse:
        """Who used the server how long."""
        request = access.GetUsageRequest(last_seconds=last_seconds).SerializeToString()
        data = self.send("GetUsage", request, timeout)
        return access.GetUsageResponse.FromString(data)

    def activity(self, timeout: float) -> access.GetActivityResponse:
        """Who uses the server now."""
        data = self.send("GetActivity", b"", timeout)
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
                who = self._credential.authorization()
                return self._memories.open(path, nbytes, ends - time.monotonic(), who)
            except SharedMemoryError as error:
                self._check_same_server(info, error, ends - time.monotonic())
                raise

        return repeated(attempt, timeout, self.pause)

    def under(self, key: str) -> ChannelTransport:
        """The same connection, for calls under a reservation."""
        other = copy.copy(self)
        other._key = key  # noqa: SLF001  # of its own kind
        return other

    def at(self, home: Home | None) -> ChannelTransport:
        """The same connection, for calls of a session."""
        other = copy.copy(self)
        other._home = home  # noqa: SLF001  # of its own kind
        return other

    @property
    def sessions(self) -> RemoteSessions:
        """Sessions on the server."""
        return RemoteSessions(self._target, self._limits, self, self.at)

    def reserve(self, seconds: float, wait: float, timeout: float) -> Granted:
        """Reserves the device; ``timeout``: seconds for the answer besides ``wait``."""
        ends = time.monotonic() + wait
        asks = wait + RUNNING_SECONDS + timeout

        def send(left: float, authorization: str) -> bytes:
            waits = max(0.0, ends - time.monotonic())
            request = access.ReserveRequest(seconds=seconds, wait_seconds=waits).SerializeToString()
            return self._call("Reserve", request, left, asks, self._metadata(authorization))

        data = repeated(self._authorized(send), asks, self.pause)
        answer = access.ReserveResponse.FromString(data)
        return Granted(answer.key, answer.ends_seconds, answer.renew_within_seconds)

    def renew(self, key: str, timeout: float) -> Granted:
        """Has a reservation go on."""
        request = access.RenewReservationRequest(key=key).SerializeToString()
        data = self.send("RenewReservation", request, timeout)
        answer = access.RenewReservationResponse.FromString(data)
        return Granted(key, answer.ends_seconds, answer.renew_within_seconds)

    def release(self, key: str, timeout: float) -> None:
        """Ends a reservation; without a key whatever there is."""
        request = access.ReleaseReservationRequest(key=key).SerializeToString()
        self.send("ReleaseReservation", request, timeout)

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
        """Has what lies in shared memory stay there, where the server can take it so."""
        self._memories.place(call)
        if not self._limits.chunks_beside_places:
            place_nothing_in_chunks(call, self._limits.chunk_bytes)

    def withdraw(self, call: BoundCall) -> bool:
        """Has everything travel, where the server does not know the memory; else False."""
        return self._memories.withdraw(call)

    def close(self) -> None:
        """Closes the channel; calls under way are cancelled."""
        self._closed.set()
        self._memories.close()
        self._connections.close()

    def open_stream(
        self,
        messages: Iterator[bytes],
        timeout: float | None,
        authorization: str,
        method: str = "ExecuteStream",
        request_id: str = "",
    ) -> Any:
        """Opens a method of streams: gRPC's call, which iterates over the messages that come."""
        metadata = (*(self._metadata(authorization, request_id) or ()), MANY_FRAMES)
        channels = self._connections.take()
        try:
            stream = channels.stream(method)(
                messages, timeout=timeout, metadata=metadata, wait_for_ready=True
            )
        except BaseException:
            self._connections.give_back(channels)
            raise
        if not stream.add_callback(lambda: self._connections.give_back(channels)):
            self._connections.give_back(channels)  # it has ended already
        return stream

    def authorization(self) -> str:
        """What says now who calls; empty where nothing does. Raises UnauthenticatedError."""
        return self._credential.authorization()

    def authorization_lasts(self) -> float | None:
        """Seconds until there is another one; None where there never is."""
        return self._credential.seconds_left()

    def has_another(self, error: NpucallError, sent: str) -> bool:
        """Whether there is another authorization than that which the server refused."""
        return isinstance(error, UnauthenticatedError) and self._credential.another(error, sent)

    def calls(self) -> Calls:
        """Calls of a pipeline; one after the other where the server has no streams."""
        self.check_open()
        window, chunk_bytes = self._limits.stream_window, self._limits.chunk_bytes
        if not window:
            return OneByOne(self.execute)
        frames = self._limits.frames_per_message
        return StreamsOfSessions(
            lambda home: CallStream(self.at(home), window, chunk_bytes, frames)
        )

    def _execute_in_chunks(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        """One call on a stream of its own."""
        chunk_bytes = self._limits.chunk_bytes
        if not self._limits.chunks_beside_places:
            place_nothing_in_chunks(call, chunk_bytes)
        self._limits.check_room(call)

        def attempt(open_stream: StreamOpener, seconds: float) -> Response:
            return LargeCall(call, request_id, chunk_bytes).run(open_stream, seconds)

        return self.on_stream("ExecuteStream", attempt, timeout)

    def on_stream(
        self,
        method: str,
        exchange: Callable[[StreamOpener, float], T],
        timeout: float,
        request_id: str = "",
    ) -> T:
        """What an exchange over a stream of its own gives; begun anew where it breaks."""

        def send(seconds: float, authorization: str) -> T:
            def open_stream(messages: Iterator[bytes], timeout: float) -> Any:
                return self.open_stream(messages, timeout, authorization, method, request_id)

            with self.errors(timeout):
                return exchange(open_stream, seconds)

        return repeated(self._authorized(send), timeout, self.pause)

    def send(self, method: str, request: bytes, timeout: float, request_id: str = "") -> bytes:
        """A method of one request and one response, repeated as calls are."""

        def send(seconds: float, authorization: str) -> bytes:
            metadata = self._metadata(authorization, request_id)
            return self._call(method, request, seconds, timeout, metadata)

        return repeated(self._authorized(send), timeout, self.pause)

    def _metadata(
        self, authorization: str, request_id: str = ""
    ) -> tuple[tuple[str, str], ...] | None:
        """What goes with a call, or with a stream.

        As plain metadata: gRPC's own call credentials cost a call 360 us.
        """
        pairs = (
            (AUTHORIZATION, authorization), (REQUEST_ID, request_id), (RESERVATION, self._key),
            (SESSION, self._home.id if self._home is not None else ""),
            (TRACEPARENT, self._spans.traceparent() if self._spans is not None else ""),
        )  # fmt: skip
        return tuple(pair for pair in pairs if pair[1]) or None

    def _authorized(self, send: Callable[[float, str], T]) -> Callable[[float], T]:
        """An attempt; once more where the server wants another credential, and there is one."""

        def attempt(seconds: float) -> T:
            ends = time.monotonic() + seconds
            sent = self._credential.authorization()
            try:
                return send(seconds, sent)
            except UnauthenticatedError as error:
                if not self._credential.another(error, sent):
                    raise
            return send(max(0.0, ends - time.monotonic()), self._credential.authorization())

        return attempt

    def _why_unreachable(self) -> str:
        """What gRPC says of a connection that somebody refuses, such as for its certificate."""
        channels = self._connections.take()
        try:
            channels.method("GetServerInfo")(b"", timeout=_LAST_TRY_SECONDS)
        except grpc.RpcError as error:
            refused: Any = error
            if refused.code() is grpc.StatusCode.UNAVAILABLE:
                said = str(refused.details())
                return "" if _NOBODY in said else said
        finally:
            self._connections.give_back(channels)
        return ""

    def _call(
        self,
        method: str,
        request: bytes,
        seconds: float,
        timeout: float,
        metadata: tuple[tuple[str, str], ...] | None,
    ) -> bytes:
        """One attempt; ``timeout`` is that of all, for errors.

        Waiting for a channel that is ready makes a restart of the server cost time, not attempts.
        """
        channels = self._connections.take()
        try:
            with self.errors(timeout):
                return channels.method(method)(
                    request, timeout=seconds, metadata=metadata, wait_for_ready=True
                )
        finally:
            self._connections.give_back(channels)

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
        is_connected = not is_closed and self._connections.is_connected()
        return Sender(self._target, is_connected, is_closed)


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
