"""What a client asks of a server, or of the members of a pool."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from npucall.errors import NpucallError, ServerUnreachableError, SharedMemoryError
from npucall.v1 import access_service_pb2 as access
from npucall.v1 import operator_service_pb2 as pb
from npucall.wire.messages import join_request
from npucall.wire.rpcs import RELEASE_RESERVATION, RENEW_RESERVATION
from npucall_client.sending import tracing
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.execution import executed
from npucall_client.sending.pipeline import OneByOne
from npucall_client.sending.pipeline_calls import PipelineCalls
from npucall_client.sending.remote_sessions import RemoteSessions
from npucall_client.sending.reservations import RUNNING_SECONDS, ServerGrant, check_one

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from npucall.wire.messages import Response
    from npucall.wire.rpcs import A, Q, Rpc
    from npucall_client.sending.attempts import Where
    from npucall_client.sending.link import Link
    from npucall_client.sending.pipeline import Calls
    from npucall_client.sending.request import Request
    from npucall_client.sending.senders import Sender
    from npucall_client.shared.memory import SharedMemory

T = TypeVar("T")


class RemoteTransport:
    """Asks ``where``: one server, or a pool of them."""

    def __init__(self, where: Where[Link], sender: Sender, target: str) -> None:
        self.where = where
        self.sender = sender
        self.target = target
        self.sessions = RemoteSessions(target, self.ask)
        """Sessions there."""
        self._spans = tracing.spans()

    async def ask(self, request: Request, send: Callable[[Link, Attempts], Awaitable[T]]) -> T:
        """The result of ``send``, which makes one attempt."""
        return await Attempts(request).run(self.where, send)

    async def _send(self, request: Request, method: str, message: bytes = b"") -> bytes:
        """Calls a method of one request and one response."""
        named = request if request.name else request._replace(name=method)
        return await self.ask(
            named, lambda link, attempts: link.send_once(method, message, attempts)
        )

    async def execute(self, request: Request) -> Response:
        """Runs a call."""
        if self._spans is None:
            return await Attempts(request).run(self.where, executed)
        with self._spans.call("Execute", request.name, self.target):
            return await Attempts(request).run(self.where, executed)

    async def plan(self, request: Request) -> pb.PlanResponse:
        """Phase one of a call."""
        message = join_request(request.call.call, ())
        if self._spans is None:
            return pb.PlanResponse.FromString(await self._send(request, "Plan", message))
        with self._spans.call("Plan", request.name, self.target):
            return pb.PlanResponse.FromString(await self._send(request, "Plan", message))

    async def answer(self, request: Request, rpc: Rpc[Q, A], asked: Q) -> A:
        """The answer to an RPC of one message each way."""
        data = await self._send(request, rpc.name, asked.SerializeToString())
        return rpc.answer.FromString(data)

    async def carrier(self, request: Request) -> str:
        """How calls travel now; of a pool to one of its members."""

        async def reached(link: Link, attempts: Attempts) -> str:
            attempts.sent = await link.authorization()
            return "frames" if await link.frames.reached(attempts) else "grpc"

        return await self.ask(request, reached)

    def calls(self) -> Calls:
        """Where a pipeline sends its calls."""
        return PipelineCalls(self.where, self.sender)


class ServerTransport(RemoteTransport):
    """Asks one server."""

    def __init__(self, link: Link) -> None:
        super().__init__(link, link.sender, link.target)
        self.link = link

    @property
    def first_info(self) -> pb.GetServerInfoResponse:
        """What the server said it was."""
        return self.link.info

    async def close(self) -> None:
        """Closes the connection; calls under way are cancelled."""
        await self.link.close()

    def calls(self) -> Calls:
        """Calls of a pipeline; one after the other if the server has no streams."""
        self.link.check_open()
        return super().calls() if self.link.limits.stream_window else OneByOne(self.execute)

    async def reserve(
        self, request: Request, seconds: float, wait: float, count: int = 1
    ) -> ServerGrant:
        """Reserves the device; ``request``'s seconds for the answer come after ``wait``."""
        check_one(count)
        ends = time.monotonic() + wait

        def send(link: Link, attempts: Attempts) -> Awaitable[bytes]:
            waits = max(0.0, ends - time.monotonic())
            asked = access.ReserveRequest(seconds=seconds, wait_seconds=waits)
            return link.send_once("Reserve", asked.SerializeToString(), attempts)

        # The server has waited; only the client's own waiting would come back after it.
        asks = wait + RUNNING_SECONDS + request.timeout
        data = await self.ask(request._replace(timeout=asks, waits=False, name="Reserve"), send)
        answer = access.ReserveResponse.FromString(data)
        return ServerGrant(answer.key, answer.ends_seconds, answer.renew_within_seconds)

    async def renew(self, request: Request, key: str) -> ServerGrant:
        """Renews a reservation."""
        asked = access.RenewReservationRequest(key=key)
        answer = await self.answer(request, RENEW_RESERVATION, asked)
        return ServerGrant(key, answer.ends_seconds, answer.renew_within_seconds)

    async def release(self, request: Request, key: str) -> None:
        """Ends a reservation; without a key, ends any that there is."""
        asked = access.ReleaseReservationRequest(key=key)
        await self.answer(request, RELEASE_RESERVATION, asked)

    async def shared(self, request: Request, nbytes: int, socket: str) -> SharedMemory:
        """Memory of the server; ``socket``: the path of its socket, if not the one it says."""
        return await self.ask(request, partial(_opened_memory, nbytes=nbytes, socket=socket))


async def _opened_memory(link: Link, attempts: Attempts, nbytes: int, socket: str) -> SharedMemory:
    info = await link.server_info(attempts)
    path = socket or info.shared_memory_socket
    if not info.shared_memory_socket:
        raise SharedMemoryError(
            f"the server at {link.target} shares no memory; its setting shared_memory "
            "(--shared-memory PATH) turns that on"
        )
    try:
        who = await link.authorization()
        return await link.sender.beside(
            lambda: link.memories.open(path, nbytes, attempts.left, who)
        )
    except SharedMemoryError as error:
        await _check_same_server(link, attempts, info, error)
        raise


async def _check_same_server(
    link: Link, attempts: Attempts, before: pb.GetServerInfoResponse, error: NpucallError
) -> None:
    """Raises ServerUnreachableError, so that it is tried again, if the server was replaced.

    A side socket that is gone, refuses or closes does not say why. If the server is still the same
    one, it meant to refuse.
    """
    now: Any = await link.server_info(attempts)
    if now.server.instance != before.server.instance:
        raise ServerUnreachableError(
            f"another server runs now at the target, and the memory is gone: {error}"
        ) from error
