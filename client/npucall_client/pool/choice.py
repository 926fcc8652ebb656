"""Which member of a pool gets the next attempt at a request, as ``attempts.Where`` asks it."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from npucall.errors import (
    BusyError,
    DeviceError,
    HandleLostError,
    InternalError,
    NpucallError,
    OutOfMemoryError,
    Repeat,
    ServerUnreachableError,
)
from npucall_client.calls.options import closed
from npucall_client.pool.links import Links
from npucall_client.pool.picking import Requirements, Wanted
from npucall_client.pool.repeats import Bucket
from npucall_client.pool.table import Table
from npucall_client.sending.attempts import PAUSES, Attempts
from npucall_client.sending.follow_ups import delay_of
from npucall_client.sending.request import Request
from npucall_client.sending.reservations import keys_of
from npucall_client.sending.transfer import size_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.members import Source
    from npucall_client.sending.link import Link
    from npucall_client.sending.senders import Sender
    from npucall_client.settings import ClientSettings

_OWN = (InternalError, DeviceError)
"""Errors that a member makes itself, whatever the call is."""
_LOOK_SECONDS = 0.1
"""Between two looks at a pool of which no member can take a call."""


class Members:
    """The members of a pool, and what belongs to one of them alone."""

    only = None

    def __init__(self, settings: ClientSettings, source: Source, sender: Sender) -> None:
        self._target = settings.target
        self._source = source
        self.table: Table[Link] = Table(
            Requirements(settings.soc, settings.product, settings.labels), sender
        )
        self.links = Links(settings, self.table, sender)
        self.places: dict[str, Candidate[Link]] = {}
        """The members of sessions by the sessions' ids."""
        self.sharing: list[Candidate[Link]] = []
        """Those whose memory this process shares."""
        self._bucket = Bucket()
        self._closed = sender.event()

    async def begin(self, seconds: float) -> None:
        """Hears of members, and waits until calls may begin. Raises the errors of ``connect``."""
        attempts = Attempts(Request(seconds))
        self._source.start(self.links.hear)
        self.links.start()
        while not self.table.begins():
            if not self.table.known and (refusal := self._source.refusal()) is not None:
                raise refusal
            if not attempts.left:
                raise self._nobody(attempts)
            await self.table.wait(min(attempts.left, _LOOK_SECONDS))

    async def close(self) -> None:
        """Closes all links; calls under way are cancelled."""
        self._closed.set()
        self._source.close()
        await self.links.close()
        self.table.wake()

    async def take(self, attempts: Attempts) -> Link:
        """A member with little to do that was not tried; waits if there is none."""
        request = attempts.request
        own = self._own(request)
        attempts.pinned = own is not None
        if own is not None:
            return own
        wanted = _wanted(request)
        candidate = await self._candidate(attempts, wanted)
        attempts.place, attempts.nbytes = candidate, wanted.nbytes
        return await self.links.of(candidate, attempts.left)

    def _own(self, request: Request) -> Link | None:
        """The only member that can answer, since it has the session, or shares the memory."""
        self.check_open()
        if session := request.session_id:
            place = self.places.get(session)
            if place is None or place.link is None or self.table.of(place.address) is not place:
                raise _lost(place)
            return place.link
        for candidate in self.sharing:
            if candidate.link is not None and candidate.link.shares(request.call):
                return candidate.link
        return None

    async def _candidate(self, attempts: Attempts, wanted: Wanted) -> Candidate[Link]:
        before, only = attempts.place_before, _reserved(attempts.request)
        while True:
            self.check_open()
            candidate = None
            if attempts.stays and before is not None:
                candidate = self.table.take(wanted, (), {before.address})
            if candidate is None:
                candidate = self.table.take(wanted, attempts.tried, only, attempts.hosts)
            if candidate is not None:
                return candidate
            if not self.table.known and (refusal := self._source.refusal()) is not None:
                raise refusal
            if not attempts.left:
                raise self._nobody(attempts)
            if not attempts.tried:
                await self.table.wait(min(attempts.left, _LOOK_SECONDS))
            elif (pause := _tried_all(attempts)) is not None:
                await self.wait(pause)
            else:
                raise attempts.said()

    def give_back(self, attempts: Attempts, error: BaseException | None) -> None:
        """An attempt has ended at a member; tells the table what that says about it."""
        place: Candidate[Link] | None = attempts.place
        if place is None:
            return
        well = error is None
        self.table.give_back(place, attempts.nbytes, well=well)
        if well:
            self._bucket.answered()
        elif isinstance(error, NpucallError):
            self.note(place, error)

    def note(self, candidate: Candidate[Link], error: NpucallError) -> None:
        """Tells the table what a failure says about the member."""
        if isinstance(error, BusyError) or (error.repeat is Repeat.LATER and error.retry_after):
            self.table.busy(candidate, error, error.retry_after or 0.1)
        elif error.repeat in (Repeat.HERE, Repeat.FEW_TIMES):
            self.table.failed(candidate, error)
            self._source.look()
        elif isinstance(error, _OWN) and not isinstance(error, OutOfMemoryError):
            self.table.erred(candidate, error)

    def elsewhere(self, attempts: Attempts, error: NpucallError) -> float | None:
        """Seconds until another member is asked: no client floods a pool that is broken."""
        place: Candidate[Link] = attempts.place
        # Without its traceback, which would keep the call.
        attempts.tried = {**attempts.tried, place.address: copy.copy(error)}
        if error.repeat is Repeat.FEW_TIMES:
            attempts.hosts |= {place.host}
        return min(self._bucket.take(), attempts.left)

    async def wait(self, seconds: float) -> None:
        """A pause. Raises CancelledError once the client is closed."""
        if seconds and await self._closed.wait(seconds):
            raise closed()

    def check_open(self) -> None:
        """Raises CancelledError once the client is closed."""
        if self._closed.is_set():
            raise closed()

    def _nobody(self, attempts: Attempts) -> NpucallError:
        """The error if no member answers."""
        known = self.table.known.values()
        failures = [f"{e.address}: {e.failure}" for e in known if e.failure is not None]
        found = "; ".join(failures[:3]) or self._source.why_empty() or "they take no calls now"
        return ServerUnreachableError(
            f"no member of {self._target} took the call within {attempts.request.timeout:g} s; "
            f"the pool has {len(known)} members: {found}"
        )


def _wanted(request: Request) -> Wanted:
    """What a request wants of its member."""
    call = request.call
    return Wanted(call.operator, call.variant, size_of(call))


def _reserved(request: Request) -> Collection[str] | None:
    """The addresses of the reserved members, if a request goes only to those."""
    return frozenset(keys_of(request.reservation)) if request.reservation else None


def _lost(candidate: Candidate[Any] | None) -> HandleLostError:
    where = "the session's member" if candidate is None else candidate.address
    return HandleLostError(
        f"{where} has left the pool, and the handles of the session are gone; open another "
        "session, or one with refill=True"
    )


def _tried_all(attempts: Attempts) -> float | None:
    """Seconds until a call is tried with all members again.

    None if that does not help, or if there is no time.
    """
    errors = attempts.tried.values()
    final = {Repeat.ELSEWHERE} if attempts.request.waits else {Repeat.ELSEWHERE, Repeat.LATER}
    if all(error.repeat in final for error in errors):
        return None
    later = [delay_of(e) or math.inf for e in errors if e.repeat is Repeat.LATER]
    pause = PAUSES[min(attempts.rounds, len(PAUSES) - 1)]
    if len(later) == len(errors):
        pause = max(pause, min(later))
    if pause >= attempts.left:
        return None
    attempts.rounds += 1
    attempts.tried, attempts.hosts = {}, frozenset()
    return pause
