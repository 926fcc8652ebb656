"""A pool of servers: a call goes to a member with little to do, and to another one if it fails."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Self, TypeVar

from npucall.errors import (
    BusyError,
    DrainingError,
    NpucallError,
    Repeat,
    ServerUnreachableError,
    SharedMemoryError,
)
from npucall_client.calls.options import closed
from npucall_client.pool.course import Course
from npucall_client.pool.links import Links
from npucall_client.pool.looker import Looker
from npucall_client.pool.picking import Wish
from npucall_client.pool.pipeline import PoolCalls
from npucall_client.pool.repeats import Bucket
from npucall_client.pool.reservations import PoolReservations, keys_of
from npucall_client.pool.sessions import PoolSessions
from npucall_client.pool.sums import sum_of_activity, sum_of_usage
from npucall_client.pool.table import NOTHING, Table, Wanted
from npucall_client.sending.losses import is_break, needs_look
from npucall_client.sending.transfer import size_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from npucall.v1 import access_service_pb2 as access
    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.members import Source
    from npucall_client.sending.channel import ChannelTransport
    from npucall_client.sending.losses import Losses
    from npucall_client.sending.reservations import Granted
    from npucall_client.sending.senders import Sender
    from npucall_client.settings import ClientSettings
    from npucall_client.shared.memory import SharedMemory

T = TypeVar("T")


class PoolTransport:
    """Calls on the members that a source lists."""

    def __init__(self, settings: ClientSettings, source: Source, sender: Sender) -> None:
        self.sender = sender
        self._settings = settings
        self._source = source
        self.table: Table[ChannelTransport] = Table(
            Wish(settings.soc, settings.product, settings.labels), sender
        )
        self.links = Links(settings, self.table, sender)
        self._bucket = Bucket()
        self._closed = sender.event()
        self.waits_for_room = settings.wait
        """Whether calls wait if all members are full."""
        self._keys: Mapping[str, str] | None = None
        """The keys of the reserved members by address, if calls go only to those; else None."""
        self._sharing: list[Candidate[ChannelTransport]] = []
        self._sessions = PoolSessions(self)
        self._looker = Looker(self.table, self.links, sender)

    async def open(self) -> Self:
        """Connects to one of the members. Call this first.

        Raises ServerUnreachableError if none of them answers within ``connect_timeout``,
        NoMemberError if none of them fits, MixedPoolError if those that fit are of several kinds.
        """
        self._source.start(self.links.hear)
        try:
            await self.anywhere(self.way(NOTHING, self._settings.connect_timeout), _itself)
        except BaseException:
            await self.close()
            raise
        return self

    # --- Calls ------------------------------------------------------------------------------------

    async def execute(self, call: BoundCall, timeout: float, request_id: str) -> Response:
        """Sends a call to the member with its session or its shared memory, else to any member."""
        if call.home is not None:
            return await self._sessions.execute(call, call.home, timeout, request_id)
        if self._sharing and (link := self._sharing_link(call)) is not None:
            return await link.execute(call, timeout, request_id)
        return await self.run(self.course(call, timeout, request_id), call)

    def course(self, call: BoundCall, timeout: float, request_id: str) -> Course:
        """The course of a call over the members."""
        wanted = Wanted(call.operator, call.variant, size_of(call))
        return self.way(wanted, timeout, request_id)

    def way(self, wanted: Wanted, timeout: float, request_id: str = "") -> Course:
        """The course of a request that any member may answer."""
        return Course(wanted, timeout, request_id, waits=self.waits_for_room)

    async def run(self, course: Course, call: BoundCall) -> Response:
        """Sends a call that may go to any member; ``course``: the members that it has tried."""
        return await self.anywhere(
            course, lambda link, seconds: link.execute(call, seconds, course.request_id)
        )

    def is_pinned(self, call: BoundCall) -> bool:
        """Whether only one member can answer a call: it has the session, or shares the memory."""
        return call.home is not None or self._sharing_link(call) is not None

    def _sharing_link(self, call: BoundCall) -> ChannelTransport | None:
        for candidate in self._sharing:
            if candidate.link is not None and candidate.link.shares(call):
                link = candidate.link.repeating(self.check_open)
                return link.waiting(self.waits_for_room)
        return None

    async def anywhere(
        self, course: Course, send: Callable[[ChannelTransport, float], Awaitable[T]]
    ) -> T:
        """The result of ``send`` on a member; ``send`` gets its link and the seconds left.

        If it fails, tries other members while that may help, within the time of the course.
        """
        while True:
            candidate = await self.take(course)
            try:
                link = await self.link_of(candidate, course.left, course.losses)
                answer = await send(link, course.left)
            except NpucallError as error:
                self.give_back(candidate, course, well=False)
                delay = await self.failed(candidate, course, error)
                if delay is None:
                    raise
            except BaseException:
                self.give_back(candidate, course, well=False)
                raise
            else:
                self.give_back(candidate, course, well=True)
                return answer
            await self.wait(min(delay, course.left))

    async def failed(
        self, candidate: Candidate[ChannelTransport], course: Course, error: NpucallError
    ) -> float | None:
        """A member did not answer a call. Returns the seconds until the next attempt.

        If it matters, checks for up to two seconds whether the member's process has ended. Returns
        None if there is no other attempt; raises PoisonedCallError.
        """
        self.note(candidate, error)
        if is_break(error) and (link := candidate.link) is not None:
            ended = needs_look(error) and await link.has_ended(candidate.opened)
            course.lost(error, candidate.address, candidate.opened, ended=ended)
        goes_on = course.failed(candidate.address, candidate.host, error)
        return self._bucket.take() if goes_on else None

    def give_back(
        self, candidate: Candidate[ChannelTransport], course: Course, *, well: bool
    ) -> None:
        """A call has ended at a member; ``well``: with an answer."""
        self.table.give_back(candidate, course.wanted.nbytes, well=well)
        if well:
            self._bucket.answered()

    async def take(self, course: Course) -> Candidate[ChannelTransport]:
        """The member that gets a call; waits if none can take it. Raises the error that ends it."""
        while True:
            self.check_open()
            candidate = self.table.take(course.wanted, course.tried, self._only, course.hosts)
            if candidate is not None:
                course.at = candidate.address
                return candidate
            if not self.table.known and (refusal := self._source.refusal()) is not None:
                raise refusal
            if not course.left:
                raise self._nobody(course)
            if course.tried:
                if (pause := course.tried_all()) is None:
                    raise course.said()
                await self.wait(pause)
            else:
                await self.table.wait(min(course.left, 0.1))

    async def link_of(
        self,
        candidate: Candidate[ChannelTransport],
        seconds: float,
        losses: Losses | None = None,
    ) -> ChannelTransport:
        """The link to a member, under this client's reservation of it if there is one."""
        link = await self.links.of(candidate, seconds)
        if losses is not None:
            link = link.carrying(losses)
        if self.waits_for_room != self._settings.wait:
            link = link.waiting(self.waits_for_room)
        return link if self._keys is None else link.under(self._keys[candidate.address])

    def note(self, candidate: Candidate[ChannelTransport], error: NpucallError) -> None:
        """Tells the table what a failure says about the member."""
        if isinstance(error, BusyError) or (error.repeat is Repeat.LATER and error.retry_after):
            self.table.busy(candidate, error, error.retry_after or 0.1)
        elif error.repeat in (Repeat.HERE, Repeat.FEW_TIMES):
            self.table.failed(candidate, error)
            self._source.look()

    def calls(self) -> PoolCalls:
        """Calls of a pipeline: a stream for each member."""
        self.check_open()
        return PoolCalls(self)

    # --- What any member answers ------------------------------------------------------------------

    async def plan(self, call: BoundCall, timeout: float, request_id: str) -> pb.PlanResponse:
        """Phase one of a call."""
        if call.home is not None:
            return await self._sessions.link_of(call.home).plan(call, timeout, request_id)
        course = self.way(Wanted(call.operator, call.variant), timeout)
        return await self.anywhere(course, lambda link, left: link.plan(call, left, request_id))

    async def operators(self, timeout: float) -> list[pb.OperatorInfo]:
        """What one of the members lists."""
        return await self.anywhere(
            self.way(NOTHING, timeout), lambda link, left: link.operators(left)
        )

    async def operator(self, name: str, variant: str, timeout: float) -> pb.OperatorInfo:
        """An operator of a member that has it."""
        course = self.way(Wanted(name, variant), timeout)
        return await self.anywhere(course, lambda link, left: link.operator(name, variant, left))

    async def server_info(self, timeout: float) -> pb.GetServerInfoResponse:
        """What one of the members says about itself."""
        return await self.anywhere(
            self.way(NOTHING, timeout), lambda link, left: link.server_info(left)
        )

    # --- What all of them answer ------------------------------------------------------------------

    async def usage(self, last_seconds: float, timeout: float) -> access.GetUsageResponse:
        """Who used the members, and how long. Raises the error if one of them does not answer."""
        answers = await self.of_all(lambda link: link.usage(last_seconds, timeout), timeout)
        return sum_of_usage(answers)

    async def activity(self, timeout: float) -> access.GetActivityResponse:
        """Who uses the members now. Raises the error if one of them does not answer."""
        return sum_of_activity(await self.of_all(lambda link: link.activity(timeout), timeout))

    async def of_all(
        self, ask: Callable[[ChannelTransport], Awaitable[T]], timeout: float
    ) -> list[T]:
        """The answers of all members that the client may call."""
        allowed = sorted(self.table.allowed(), key=lambda each: each.address)
        return [await ask(await self.link_of(candidate, timeout)) for candidate in allowed]

    # --- What belongs to one member ---------------------------------------------------------------

    @property
    def sessions(self) -> PoolSessions:
        """Sessions, each on a member of its own."""
        return self._sessions

    async def shared(self, nbytes: int, socket: str, timeout: float) -> SharedMemory:
        """Memory of a member on this host."""
        ends = time.monotonic() + timeout
        refusals = []
        for candidate in sorted(self.table.allowed(), key=lambda each: each.work):
            left = max(0.0, ends - time.monotonic())
            try:
                link = await self.link_of(candidate, left)
                memory = await link.shared(nbytes, socket, left)
            except (SharedMemoryError, ServerUnreachableError, DrainingError) as error:
                refusals.append(f"{candidate.address}: {error}")
                continue
            self._sharing.append(candidate)
            return memory
        raise SharedMemoryError(
            f"none of the {len(refusals)} members on this host shares memory (setting "
            "shared_memory of the server)" + "".join(f"; {refusal}" for refusal in refusals[:1])
        )

    async def reserve(self, seconds: float, wait: float, timeout: float, count: int = 1) -> Granted:
        """Reserves ``count`` members."""
        return await PoolReservations(self).reserve(seconds, wait, timeout, count)

    async def renew(self, key: str, timeout: float) -> Granted:
        """Renews a reservation on each of its members."""
        return await PoolReservations(self).renew(key, timeout)

    async def release(self, key: str, timeout: float) -> None:
        """Ends a reservation; without a key those of all members."""
        await PoolReservations(self).release(key, timeout)

    def under(self, key: str) -> Self:
        """The same pool, for calls on the reserved members only."""
        other = copy.copy(self)
        other._keys = keys_of(key) if key else None  # noqa: SLF001  # of its own kind
        return other

    def waiting(self, wait: bool) -> Self:  # noqa: FBT001  # it is what the setting is called
        """The same pool, for calls that wait, or do not wait, if all members are full."""
        other = copy.copy(self)
        other.waits_for_room = wait
        other._sessions = self._sessions.over(other)  # noqa: SLF001  # of its own kind
        return other

    # --- Ends -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Closes all links; calls under way are cancelled."""
        self._closed.set()
        self._source.close()
        self._looker.close()
        await self.links.close()
        self.table.wake()

    def check_open(self) -> None:
        """Raises CancelledError once the client is closed."""
        if self._closed.is_set():
            raise closed()

    @property
    def _only(self) -> frozenset[str] | None:
        return None if self._keys is None else frozenset(self._keys)

    async def wait(self, seconds: float) -> None:
        """Waits. Raises CancelledError once the client is closed."""
        if seconds and await self._closed.wait(seconds):
            raise closed()

    def _nobody(self, course: Course) -> NpucallError:
        """The error if no member answers."""
        known = self.table.known.values()
        failures = [f"{e.address}: {e.failure}" for e in known if e.failure is not None]
        why = self._source.why_empty()
        found = "; ".join(failures[:3]) or why or "they take no calls now"
        return ServerUnreachableError(
            f"no member of {self._settings.target} took the call within {course.timeout:g} s; "
            f"the pool has {len(known)} members: {found}"
        )


async def _itself(link: ChannelTransport, _: float) -> ChannelTransport:
    """Returns the link: the caller needs no answer."""
    return link
