"""The only loop that sends again: for calls, streams, sessions, reservations and pools alike.

What follows from an error says the table in ``follow_ups``.

The poison rule: a call may itself be what ends its servers. After three processes that ended under
it, the client sends it no more. A call that was only beside such a call each time is refused too.
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from npucall.errors import (
    DeadlineError,
    DeviceLostError,
    NpucallError,
    PoisonedCallError,
    Repeat,
    UnauthenticatedError,
)
from npucall_client.sending.follow_ups import MENDING, Next, delay_of, follows

if TYPE_CHECKING:
    from npucall_client.sending.request import Request

T = TypeVar("T")

_log = logging.getLogger("npucall_client")

PAUSES = (0.1, 0.3, 0.9, 2.7)
"""Seconds before each further attempt at a server; the last one counts for all that follow."""
MOST_LOST = 3
"""After so many processes that ended under a call, it is not sent again [src:pool-poison]."""


class Destination(Protocol):
    """What gets an attempt."""

    target: str

    @property
    def instance(self) -> str | None:
        """The process that answered last; None if that one has ended."""

    async def ask(self, attempts: Attempts) -> object:
        """Asks what the server is now."""

    async def has_ended(self, instance: str | None) -> bool:
        """Whether that process is gone."""

    async def has_another(self, error: UnauthenticatedError, sent: str) -> bool:
        """Whether there is a credential other than ``sent``, which was refused."""

    def withdraw(self, request: Request) -> bool:
        """Makes all arrays of a call travel; False if they did."""


S_co = TypeVar("S_co", bound=Destination, covariant=True)


class Where(Protocol[S_co]):
    """One server, or a pool of them."""

    @property
    def only(self) -> S_co | None:
        """The server, if there is only one."""

    async def take(self, attempts: Attempts) -> S_co:
        """The server that gets the next attempt. Waits; raises the error that ends them."""

    def give_back(self, attempts: Attempts, error: BaseException | None) -> None:
        """An attempt has ended there. Not called if there is only one."""

    def elsewhere(self, attempts: Attempts, error: NpucallError) -> float | None:
        """Seconds until another server is asked; None if none is."""

    async def wait(self, seconds: float) -> None:
        """A pause. Raises CancelledError once the client is closed."""


class Lost(NamedTuple):
    """An attempt that ended with its server."""

    address: str
    instance: str
    """Of the process; empty if it is not known."""


class Attempts:
    """The attempts at one request: what has happened to it, and what follows.

    ``server``: the one that has the current attempt.
    """

    server: Any = None
    pinned = False
    """Whether only this member of a pool can answer it."""
    stays = False
    """Whether the next attempt is at the same member of a pool."""
    in_chunks = False
    sent = ""
    """The credential that was sent last."""
    instance: str | None = ""
    """The process that got the current attempt."""
    opened = 0
    """How often its session had been opened."""
    place: Any = None
    """The pool's record of the member where it is."""
    place_before: Any = None
    nbytes = 0
    """What the pool counts for it there."""
    mended: frozenset[Next] = frozenset()
    failures = 0
    rounds = 0
    lost: tuple[Lost, ...] = ()
    tried: Mapping[str, NpucallError] = {}
    """The errors of members by address, since all of them were last asked."""
    hosts: frozenset[str] = frozenset()
    """Machines on which a member failed: other members there may have the same trouble."""

    __slots__ = ("__dict__", "ends", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.ends = time.monotonic() + request.timeout

    @property
    def left(self) -> float:
        """Seconds until its timeout."""
        return max(0.0, self.ends - time.monotonic())

    async def begin(self) -> None:
        """Looks whether its session is open, and opens it again if it may."""
        request = self.request
        if request.home is not None:
            self.opened = await request.home.ready(self.left, request.held)

    async def run(self, where: Where[S_co], send: Callable[[S_co, Attempts], Awaitable[T]]) -> T:
        """The result of ``send``, tried again while that may help and the timeout allows."""
        only = where.only
        if self.request.home is not None:
            await self.begin()
        while True:
            # No name keeps the error after its block: its traceback would keep the tensors.
            try:
                server = only or await self.taken(where)
                if server.instance is None:
                    await server.ask(self)
                self.instance = server.instance
                answer = await send(server, self)
            except BaseException as error:
                pause = await self._failed(where, error)
                if pause is None:
                    raise
            else:
                if only is None:
                    where.give_back(self, None)
                return answer
            if pause:
                await where.wait(pause)

    async def _failed(self, where: Where[Any], error: BaseException) -> float | None:
        """An attempt has failed. Seconds until the next one; None if there is none."""
        if where.only is None:
            where.give_back(self, error)
        return await self.after(where, error) if isinstance(error, NpucallError) else None

    async def taken(self, where: Where[S_co]) -> S_co:
        """The server that gets the next attempt."""
        self.place_before, self.server, self.place = self.place, None, None
        self.server = await where.take(self)
        _log.debug("%s goes to %s", self.request.name or "a request", self.server.target)
        return self.server

    async def after(self, where: Where[Any], error: NpucallError) -> float | None:
        """Seconds until the next attempt; None if there is none. Raises PoisonedCallError."""
        server = where.only or self.server
        step = self.next(where, error)
        place = server.target if server is not None else "no server"
        _log.debug(
            "%s at %s: %s; %s", self.request.name or "a request", place, error.reason, step.value
        )
        if self.lost and isinstance(error, DeadlineError):
            self.check(error, self._restarts(error))
        if step in MENDING:
            return 0.0 if await self.mend(step, error, server) else None
        if step is not Next.NEVER and server is not None and error.repeat is Repeat.FEW_TIMES:
            is_over = isinstance(error, DeviceLostError) or await server.has_ended(self.instance)
            self.check(error, self.lose(server.target, ended=is_over))
        return self.pause(where, step, error)

    def next(self, where: Where[Any], error: NpucallError) -> Next:
        """What follows from an error of the last attempt."""
        row = follows(error)
        if self.request.home is not None:
            step = row.session
        elif self.request.once:
            step = row.once
        else:
            step = row.server if self.pinned or where.only is not None else row.pool
        if where.only is None and self.place is None and step is not Next.REFILL:
            return Next.NEVER  # no server could be asked
        return Next.NEVER if step in self.mended else step

    async def mend(self, step: Next, error: NpucallError, server: Destination | None) -> bool:
        """Does what may help before the same call is sent again. Returns whether it could."""
        self.mended |= {step}
        if step is Next.CHUNKS:
            self.in_chunks = error.details.get("method") == "ExecuteStream"
            return self.in_chunks and not self.request.once
        if step is Next.TRAVEL and server is not None:
            return server.withdraw(self.request)
        if step is Next.CREDENTIAL and server is not None:
            assert isinstance(error, UnauthenticatedError)  # noqa: S101  # its row
            return await server.has_another(error, self.sent)
        home = self.request.home
        assert home is not None  # noqa: S101  # else none of its rows
        if not await home.mend(error, self.opened, self.left):
            return False
        await self.begin()
        return True

    def lose(self, address: str, *, ended: bool) -> PoisonedCallError | None:
        """A connection broke; ``ended``: with the process. The error if it is not sent again."""
        if ended:
            self.lost += (Lost(address, self.instance or ""),)
        return self._poisoned() if len(self.lost) >= MOST_LOST else None

    @staticmethod
    def check(error: NpucallError, poisoned: NpucallError | None) -> None:
        """Raises the second one."""
        if poisoned is not None:
            try:
                raise poisoned from error
            finally:
                del poisoned, error  # their tracebacks would keep them, and the tensors

    def pause(self, where: Where[Any], step: Next, error: NpucallError) -> float | None:
        """Seconds until the next attempt, which is counted; None if there is none.

        There is none if the pause would be too long: the caller gets the error now and not later.
        """
        pause = None
        self.mended = frozenset()
        self.stays = step is Next.LATER
        if step is Next.AGAIN:
            pause = PAUSES[min(self.failures, len(PAUSES) - 1)]
        elif step is Next.LATER and self.request.waits:
            pause = delay_of(error)
        elif step is Next.ELSEWHERE:
            return where.elsewhere(self, error)
        if pause is None or time.monotonic() + pause >= self.ends:
            return None
        self.failures += step is Next.AGAIN
        return pause

    def said(self) -> NpucallError:
        """The error of the last member that was asked."""
        return copy.copy([*self.tried.values()][-1])

    def _restarts(self, error: DeadlineError) -> DeadlineError:
        """What to say of a call whose time ended after its servers had."""
        servers = ", ".join(dict.fromkeys(each.address for each in self.lost))
        count = "once" if len(self.lost) == 1 else f"{len(self.lost)} times"
        return type(error)(
            f"the time of the call ended; the server ({servers}) ended {count} while the call ran "
            "there: its log, or the kernel's, says why, and a longer timeout does not help"
        )

    def _poisoned(self) -> PoisonedCallError:
        servers = ", ".join(
            f"{address} (instance {instance})" if instance else address
            for address, instance in self.lost
        )
        request = self.request
        call = request.name or "call"
        name = f"; request id {request.request_id}" if request.request_id else ""
        return PoisonedCallError(
            f"{call}: each server that ran this call ended, so the client does not send it again: "
            f"{servers}{name}",
            operator=request.name,
            request_id=request.request_id,
            servers=servers,
        )
