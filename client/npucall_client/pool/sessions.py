"""Sessions of a pool: each is on the member that opened it, and ends with that member."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from npucall.errors import HandleLostError, WrongServerError
from npucall_client.pool.table import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from npucall.places import HandlePart
    from npucall.v1 import operator_service_pb2 as pb
    from npucall.wire.messages import Response
    from npucall_client.calls.arguments import BoundCall
    from npucall_client.calls.options import Progress
    from npucall_client.calls.tensors import Home
    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.transport import PoolTransport
    from npucall_client.sending.channel import ChannelTransport
    from npucall_client.sending.session_transport import Opened, Upload
    from npucall_client.sending.sessions import RemoteSessions


_SECONDS = 10.0
"""Time for a member that is asked for its limits."""


@contextmanager
def _lost_elsewhere() -> Iterator[None]:
    """If another server answers at the member's address, the member and its handles are lost."""
    try:
        yield
    except WrongServerError as error:
        raise HandleLostError(
            "another server runs now at the address of the session's member, and the handles are "
            "gone; open another session, or one with refill=True"
        ) from error


class PoolSessions:
    """Finds the member of a session by the session's id."""

    def __init__(self, pool: PoolTransport) -> None:
        self._pool = pool
        self._places: dict[str, Candidate[ChannelTransport]] = {}

    def over(self, pool: PoolTransport) -> Self:
        """The same sessions, for a copy of the pool with the same members."""
        other = copy.copy(self)
        other._pool = pool  # noqa: SLF001  # of its own kind
        return other

    async def program_steps(self) -> int:
        """Most steps of a program on one of the members."""
        course = self._pool.way(NOTHING, _SECONDS)
        return await self._pool.anywhere(course, lambda link, _: link.sessions.program_steps())

    async def remembers(self) -> bool:
        """Whether one of the members keeps bytes by their digests."""
        course = self._pool.way(NOTHING, _SECONDS)
        return await self._pool.anywhere(course, lambda link, _: link.sessions.remembers())

    async def execute(
        self, call: BoundCall, home: Home, timeout: float, request_id: str
    ) -> Response:
        """Sends a call that uses handles of a session."""
        with _lost_elsewhere():
            return await self.link_of(home).execute(call, timeout, request_id)

    def link_of(self, home: Home) -> ChannelTransport:
        """The link to the member of a session. Raises HandleLostError if it is gone."""
        candidate = self._places.get(home.id)
        link = None if candidate is None else candidate.link
        if candidate is None or link is None:
            raise self._lost(candidate)
        return link.repeating(lambda: self._check(candidate)).waiting(self._pool.waits_for_room)

    def _check(self, candidate: Candidate[ChannelTransport]) -> None:
        self._pool.check_open()
        if self._pool.table.of(candidate.address) is not candidate:
            raise self._lost(candidate)

    def _lost(self, candidate: Candidate[ChannelTransport] | None) -> HandleLostError:
        where = "the session's member" if candidate is None else candidate.address
        return HandleLostError(
            f"{where} has left the pool, and the handles of the session are gone; open another "
            "session, or one with refill=True"
        )

    async def open(self, lease: float, budget: int, timeout: float) -> Opened:
        """Opens a session on the member with the least to do."""
        course = self._pool.way(NOTHING, timeout)
        opened = await self._pool.anywhere(
            course, lambda link, seconds: link.sessions.open(lease, budget, seconds)
        )
        candidate = self._pool.table.of(course.at)
        if candidate is not None:
            self._places[opened.id] = candidate
        return opened

    async def renew(self, home: Home, timeout: float) -> None:
        with _lost_elsewhere():
            await self._of(home).renew(home, timeout)

    async def close(self, home: Home, timeout: float) -> None:
        try:
            await self._of(home).close(home, timeout)
        finally:
            self._places.pop(home.id, None)

    async def release(self, home: Home, handles: Sequence[bytes], timeout: float) -> None:
        with _lost_elsewhere():
            await self._of(home).release(home, handles, timeout)

    async def upload(
        self, home: Home, upload: Upload, timeout: float, request_id: str, progress: Progress | None
    ) -> None:
        with _lost_elsewhere():
            await self._of(home).upload(home, upload, timeout, request_id, progress)

    async def download(  # noqa: PLR0913  # all that makes a call
        self,
        home: Home,
        part: HandlePart,
        memory: memoryview,
        timeout: float,
        request_id: str,
        progress: Progress | None,
    ) -> None:
        with _lost_elsewhere():
            await self._of(home).download(home, part, memory, timeout, request_id, progress)

    async def run_program(
        self, home: Home, steps: Sequence[BoundCall], timeout: float, request_id: str
    ) -> list[Response]:
        with _lost_elsewhere():
            return await self._of(home).run_program(home, steps, timeout, request_id)

    async def plan_program(
        self, home: Home, steps: Sequence[BoundCall], timeout: float, request_id: str
    ) -> pb.PlanProgramResponse:
        with _lost_elsewhere():
            return await self._of(home).plan_program(home, steps, timeout, request_id)

    def _of(self, home: Home) -> RemoteSessions:
        return self.link_of(home).sessions
