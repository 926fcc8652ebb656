"""A pool of servers: a call goes to a member with little to do, and to another one if it fails."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self, TypeVar, cast

from npucall.errors import (
    DrainingError,
    HandleLostError,
    NpucallError,
    ServerUnreachableError,
    SharedMemoryError,
    WrongServerError,
)
from npucall_client.pool.choice import Members
from npucall_client.pool.reservations import PoolReservations
from npucall_client.pool.sums import SUMS
from npucall_client.sending.remote import RemoteTransport, ServerTransport
from npucall_client.sending.remote_sessions import RemoteSessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.rpcs import A, Q, Rpc
    from npucall_client.pool.members import Source
    from npucall_client.sending.attempts import Attempts
    from npucall_client.sending.pipeline import Calls
    from npucall_client.sending.remote_sessions import Ask
    from npucall_client.sending.request import Request
    from npucall_client.sending.reservations import ServerGrant
    from npucall_client.sending.senders import Sender
    from npucall_client.settings import ClientSettings
    from npucall_client.shared.memory import SharedMemory

T = TypeVar("T")


class PoolTransport(RemoteTransport):
    """Calls on the members that a source lists."""

    def __init__(self, settings: ClientSettings, source: Source, sender: Sender) -> None:
        self.members = members = Members(settings, source, sender)
        super().__init__(members, sender, settings.target)
        self.sessions = PoolSessions(settings.target, self.ask, members)
        self._connect_timeout = settings.connect_timeout

    async def open(self) -> Self:
        """Connects to one of the members. Call this first.

        Raises ServerUnreachableError if none of them answers within ``connect_timeout``,
        NoMemberError if none of them fits, MixedPoolError if those that fit are of several kinds.
        """
        try:
            await self.members.begin(self._connect_timeout)
        except BaseException:
            await self.close()
            raise
        return self

    @property
    def first_info(self) -> pb.GetServerInfoResponse:
        """What one of the members said it was."""
        known = self.members.table.known.values()
        return next(each.link.info for each in known if each.link is not None)

    async def close(self) -> None:
        """Closes all links; calls under way are cancelled."""
        await self.members.close()

    def calls(self) -> Calls:
        """Calls of a pipeline: a stream for each member."""
        self.members.check_open()
        return super().calls()

    # --- What one of them answers, or all ---------------------------------------------------------

    async def answer(self, request: Request, rpc: Rpc[Q, A], asked: Q) -> A:
        """That of one member, or the sum of all; then all of them have to answer."""
        total = SUMS.get(rpc.name)
        if total is None:
            return await super().answer(request, rpc, asked)
        once = request._replace(once=True)
        answers = await self.of_all(request, lambda member: member.answer(once, rpc, asked))
        return cast("A", total(answers))

    async def of_all(
        self, request: Request, ask: Callable[[ServerTransport], Awaitable[T]]
    ) -> list[T]:
        """The answers of all members that the client may call."""
        links = self.members.links
        allowed = sorted(self.members.table.allowed(), key=lambda each: each.address)
        return [
            await ask(ServerTransport(await links.of(candidate, request.timeout)))
            for candidate in allowed
        ]

    # --- What belongs to one member ---------------------------------------------------------------

    async def shared(self, request: Request, nbytes: int, socket: str) -> SharedMemory:
        """Memory of a member on this host."""
        ends = time.monotonic() + request.timeout
        refusals = []
        for candidate in sorted(self.members.table.allowed(), key=lambda each: each.work):
            once = request._replace(timeout=max(0.0, ends - time.monotonic()), once=True)
            try:
                link = await self.members.links.of(candidate, once.timeout)
                memory = await ServerTransport(link).shared(once, nbytes, socket)
            except (SharedMemoryError, ServerUnreachableError, DrainingError) as error:
                refusals.append(f"{candidate.address}: {error}")
                continue
            self.members.sharing.append(candidate)
            return memory
        raise SharedMemoryError(
            f"none of the {len(refusals)} members on this host shares memory (setting "
            "shared_memory of the server)" + "".join(f"; {refusal}" for refusal in refusals[:1])
        )

    async def reserve(
        self, request: Request, seconds: float, wait: float, count: int = 1
    ) -> ServerGrant:
        """Reserves ``count`` members."""
        return await PoolReservations(self.members).reserve(request, seconds, wait, count)

    async def renew(self, request: Request, key: str) -> ServerGrant:
        """Renews a reservation on each of its members."""
        return await PoolReservations(self.members).renew(request, key)

    async def release(self, request: Request, key: str) -> None:
        """Ends a reservation; without a key those of all members."""
        await PoolReservations(self.members).release(request, key)


class PoolSessions(RemoteSessions):
    """Sessions of a pool: each is on the member that opened it, and ends with that member."""

    def __init__(self, target: str, ask: Ask, members: Members) -> None:
        super().__init__(target, ask)
        self._places = members.places

    def note(self, session: str, attempts: Attempts) -> None:
        self._places[session] = attempts.place

    def lost(self, error: NpucallError) -> NpucallError:
        """If another server answers at the member's address, the member's handles are lost."""
        if not isinstance(error, WrongServerError):
            return error
        return HandleLostError(
            "another server runs now at the address of the session's member, and the handles are "
            "gone; open another session, or one with refill=True"
        )

    async def close(self, request: Request) -> None:
        try:
            await super().close(request)
        finally:
            self._places.pop(request.session_id, None)
