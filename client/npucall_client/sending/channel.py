"""A server at a target: how calls, sessions, shared memory and reservations travel to it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Self, TypeVar

from npucall.errors import (
    ConnectionLostError,
    DeadlineError,
    NpucallError,
    ServerUnreachableError,
    SharedMemoryError,
    TooLargeError,
)
from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import Response, join_request, split_response
from npucall_client.sending.failures import unreachable
from npucall_client.sending.large_call import LargeCall
from npucall_client.sending.link import Link
from npucall_client.sending.pipeline import OneByOne
from npucall_client.sending.probe import first_look, why_unreachable
from npucall_client.sending.reservations import RUNNING_SECONDS, Granted, check_one
from npucall_client.sending.server_limits import ServerLimits
from npucall_client.sending.sessions import RemoteSessions
from npucall_client.sending.stream import CallStream
from npucall_client.sending.streams import StreamsOfSessions
from npucall_client.sending.transfer import message_of, place_nothing_in_chunks
from npucall_client.shared.memory import SharedMemories

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AbstractContextManager

    from npucall_client.calls.arguments import BoundCall
    from npucall_client.sending.large_call import StreamOpener
    from npucall_client.sending.losses import Losses
    from npucall_client.sending.pipeline import Calls
    from npucall_client.sending.senders import Sender
    from npucall_client.settings import ClientSettings
    from npucall_client.shared.memory import SharedMemory

T = TypeVar("T")

_NO_SPAN = nullcontext()


class ChannelTransport(Link):
    """Sends to the server that the settings name; ``once``: see Link.

    Raises ValueError for credentials that cannot be.
    """

    def __init__(self, settings: ClientSettings, sender: Sender, *, once: bool = False) -> None:
        super().__init__(settings, sender, once=once)
        self._memories = SharedMemories()
        self._settings = settings
        self.info = pb.GetServerInfoResponse()

    async def open(self) -> Self:
        """Asks what the server is. Call this first.

        Raises ServerUnreachableError if nothing answers within ``connect_timeout``.
        """
        seconds = self._settings.connect_timeout
        try:
            found = await self._first_asked(seconds)
        except (DeadlineError, ServerUnreachableError) as error:
            why = "" if self._once else await why_unreachable(self, self._settings)
            await self.close()
            if isinstance(error, ConnectionLostError):
                raise
            way = self.connections.way.told
            raise unreachable(self.target, seconds, why, way) from None
        except BaseException:
            await self.close()
            raise
        if found:
            await self.close()
            raise ServerUnreachableError(found)
        return self

    async def _first_asked(self, seconds: float) -> str:
        """Asks what the server is; waits for one that is starting.

        Returns a sentence if something else answers there. With ``once`` there is one attempt, and
        no sentence.
        """
        ends = time.monotonic() + seconds
        data, found = (None, "") if self._once else await first_look(self, self._settings, seconds)
        if data is not None:
            self.info = self._learned(pb.GetServerInfoResponse.FromString(data))
        elif not found:
            self.info = await self.asked(max(0.0, ends - time.monotonic()))
        return found

    async def asked(self, timeout: float) -> pb.GetServerInfoResponse:
        """What the server is now; the client uses its limits from then on."""
        return self._learned(await self.server_info(timeout))

    def _learned(self, info: pb.GetServerInfoResponse) -> pb.GetServerInfoResponse:
        self._seen.instance = info.server.instance
        self._limits = ServerLimits(info.limits, self._settings.stream_from)
        return info

    async def execute(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        """Sends a call; repeats it while the server is unavailable and the timeout allows."""
        if call.home is not self._home:
            return await self.at(call.home).execute(call, timeout, request_id)
        with self._span("Execute", call):
            return await self._executed(call, timeout, request_id)

    def _span(self, method: str, call: BoundCall) -> AbstractContextManager[None]:
        """The span of one call, if the application wants spans."""
        if self._spans is None:
            return _NO_SPAN
        return self._spans.call(method, call.operator, self.target)

    async def _executed(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        if not self._memories.regions:
            return await self._run(call, timeout, request_id)
        end = time.monotonic() + timeout
        self._memories.place(call)
        try:
            return await self._run(call, timeout, request_id)
        except SharedMemoryError:
            if not self._memories.withdraw(call):
                raise
        return await self._run(call, max(0.0, end - time.monotonic()), request_id)

    async def _run(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        if self._limits.travels_in_chunks(call):
            return await self._execute_in_chunks(call, timeout, request_id)
        message = message_of(call)
        self._limits.check_message(call, len(message))
        end = time.monotonic() + timeout
        try:
            data = await self.send("Execute", message, timeout, request_id, call.operator)
            return split_response(data)
        except TooLargeError as error:  # only the server can know how long its answer is
            if error.details.get("method") != "ExecuteStream" or not self._limits.stream_window:
                raise
        return await self._execute_in_chunks(call, end - time.monotonic(), request_id)

    async def again(
        self, call: BoundCall, timeout: float, request_id: str, losses: Losses
    ) -> Response:
        """Sends a call of which an attempt was lost before."""
        link = self.carrying(losses)
        link._home = call.home  # noqa: SLF001  # of its own kind
        return await link.execute(call, timeout, request_id)

    async def plan(self, call: BoundCall, timeout: float, request_id: str) -> pb.PlanResponse:
        """Phase one of a call."""
        message = join_request(call.call, ())
        with self._span("Plan", call):
            data = await self.send("Plan", message, timeout, request_id)
        return pb.PlanResponse.FromString(data)

    async def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        """What the server lists."""
        data = await self.send("ListOperators", b"", timeout)
        return list(pb.ListOperatorsResponse.FromString(data).operators)

    async def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        """One operator of the server."""
        request = pb.GetOperatorRequest(operator=name, variant=variant).SerializeToString()
        data = await self.send("GetOperator", request, timeout)
        return pb.GetOperatorResponse.FromString(data).operator

    async def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        """What the server is."""
        data = await self.send("GetServerInfo", b"", timeout)
        return pb.GetServerInfoResponse.FromString(data)

    async def usage(self, last_seconds: float, timeout: float) -> access.GetUsageResponse:
        """Who used the server, and how long."""
        request = access.GetUsageRequest(last_seconds=last_seconds).SerializeToString()
        data = await self.send("GetUsage", request, timeout)
        return access.GetUsageResponse.FromString(data)

    async def activity(self, timeout: float) -> access.GetActivityResponse:
        """Who uses the server now."""
        data = await self.send("GetActivity", b"", timeout)
        return access.GetActivityResponse.FromString(data)

    async def shared(self, nbytes: int, socket: str, timeout: float) -> SharedMemory:
        """Memory of the server; ``socket``: the path of its socket, if not the one it says."""

        async def attempt(seconds: float) -> SharedMemory:
            ends = time.monotonic() + seconds
            info = await self.server_info(seconds)
            path = socket or info.shared_memory_socket
            if not info.shared_memory_socket:
                raise SharedMemoryError(
                    f"the server at {self.target} shares no memory; its setting shared_memory "
                    "(--shared-memory PATH) turns that on"
                )
            try:
                who = await self.authorization()
                return await self.sender.beside(
                    lambda: self._memories.open(path, nbytes, ends - time.monotonic(), who)
                )
            except SharedMemoryError as error:
                await self._check_same_server(info, error, ends - time.monotonic())
                raise

        return await self.tried(attempt, timeout)

    @property
    def sessions(self) -> RemoteSessions:
        """Sessions on the server."""
        return RemoteSessions(self.target, self._limits, self, self.at)

    async def reserve(self, seconds: float, wait: float, timeout: float, count: int = 1) -> Granted:
        """Reserves the device; ``timeout``: seconds for the answer in addition to ``wait``."""
        check_one(count)
        ends = time.monotonic() + wait
        asks = wait + RUNNING_SECONDS + timeout

        def send(link: Self, left: float, authorization: str) -> Awaitable[bytes]:
            waits = max(0.0, ends - time.monotonic())
            request = access.ReserveRequest(seconds=seconds, wait_seconds=waits).SerializeToString()
            return link.send_once("Reserve", request, left, asks, authorization)

        # The server has waited; only the link's own waiting would come back after it.
        data = await self.waiting(wait=False).repeated(send, asks, "Reserve")
        answer = access.ReserveResponse.FromString(data)
        return Granted(answer.key, answer.ends_seconds, answer.renew_within_seconds)

    async def renew(self, key: str, timeout: float) -> Granted:
        """Renews a reservation."""
        request = access.RenewReservationRequest(key=key).SerializeToString()
        data = await self.send("RenewReservation", request, timeout)
        answer = access.RenewReservationResponse.FromString(data)
        return Granted(key, answer.ends_seconds, answer.renew_within_seconds)

    async def release(self, key: str, timeout: float) -> None:
        """Ends a reservation; without a key, ends any that there is."""
        request = access.ReleaseReservationRequest(key=key).SerializeToString()
        await self.send("ReleaseReservation", request, timeout)

    async def _check_same_server(
        self, before: pb.GetServerInfoResponse, error: NpucallError, seconds: float
    ) -> None:
        """Raises ServerUnreachableError, so that it is tried again, if the server was replaced.

        A side socket that is gone, refuses or closes does not say why. If the server is still the
        same one, it meant to refuse.
        """
        now = await self.server_info(max(0.0, seconds))
        if now.server.instance != before.server.instance:
            raise ServerUnreachableError(
                f"another server runs now at the target, and the memory is gone: {error}"
            ) from error

    def place(self, call: BoundCall) -> None:
        """Leaves arrays in shared memory there, if the server can take them so."""
        self._memories.place(call)
        if not self._limits.chunks_beside_places:
            place_nothing_in_chunks(call, self._limits.chunk_bytes)

    def shares(self, call: BoundCall) -> bool:
        """Whether any array of a call lies in memory that this server shares."""
        self._memories.place(call)
        return call.placement is not None

    def withdraw(self, call: BoundCall) -> bool:
        """Makes all arrays travel, since the server does not know the memory; False if they did."""
        return self._memories.withdraw(call)

    async def close(self) -> None:
        """Closes the connection and the memory; calls under way are cancelled."""
        await super().close()
        self._memories.close()

    def calls(self) -> Calls:
        """Calls of a pipeline; one after the other if the server has no streams."""
        self.check_open()
        window, chunk_bytes = self._limits.stream_window, self._limits.chunk_bytes
        if not window:
            return OneByOne(self.execute)
        frames = self._limits.frames_per_message
        return StreamsOfSessions(
            lambda home: CallStream(self.at(home), window, chunk_bytes, frames)
        )

    async def _execute_in_chunks(
        self, call: BoundCall, timeout: float, request_id: str
    ) -> Response:
        """Sends a call on a stream of its own."""
        chunk_bytes, early = self._limits.chunk_bytes, self._limits.early_outputs
        if not self._limits.chunks_beside_places:
            place_nothing_in_chunks(call, chunk_bytes)
        self._limits.check_room(call)

        def attempt(open_stream: StreamOpener, seconds: float) -> Awaitable[Response]:
            large = LargeCall(call, request_id, chunk_bytes, early_outputs=early)
            return large.run(open_stream, seconds)

        name = call.operator
        return await self.on_stream("ExecuteStream", attempt, timeout, request_id, name)
