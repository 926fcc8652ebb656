"""Reservations of the device: who has it alone, who waits for it, and when that ends.

The server grants them itself, without an engine [src:pool-reservations].

This is a state machine without threads. It is given its clocks. ``gate`` has the threads.

| where it is | what happens | where it is then |
|---|---|---|
| free | callers wait whose tenant's gap is over | granted to the first of them that asked |
| granted | ``begin``: the device is quiet | held: its time runs from here, and it has a key |
| granted | ``withdraw``, or an admin releases | free, and the tenant's gap begins |
| held | ``renew``, or a call with its key | held: ends a lease later, never later than granted |
| held | its end; a lease without renewal; ``release`` | free, and the tenant's gap begins |
| free, and calls were refused meanwhile | nobody gets it for as long as it was taken | free |
| free or held, just started | an earlier key that has not ended | held by the key granted last |

"Just started" lasts one lease, and only if keys outlive the process. In that time the server grants
nothing. So the holder from before the restart finds its reservation, and there are never two. A key
that was granted later proves that earlier reservations had ended. A reservation that ended in this
process never comes back. A key that was released before a restart counts again in that time, if
nobody has a later one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from npucall.errors import MessageError, ReservedError
from npucall.texts import retry_in, shown
from npucall_server.access.identity import Identity
from npucall_server.scheduling.reservation_keys import ReservationKeys, Term, person_of, same

GAP_SECONDS = 60.0
"""The most that a tenant waits between two of its reservations, so that others get their turn."""
LEASE_SECONDS = 30.0
"""A reservation ends so long after its last renewal."""
_LEAST_GAP_SECONDS = 0.125
"""Calls that a reservation kept out have the device for so long at least."""
_SOON_SECONDS = 1.0
_LOOKS, _LOOK_SECONDS = 10, 5.0
"""A refused call looks so often whether the reservation has ended, or after so many seconds."""


class ReservationRules(NamedTuple):
    """How long reservations may be, and the gaps between them, in seconds."""

    longest: float
    gap: float
    lease: float = LEASE_SECONDS


class Granted(NamedTuple):
    """What a holder is told of its reservation."""

    key: str
    ends_seconds: float
    renew_within_seconds: float


class CurrentReservation(NamedTuple):
    """What everybody may know about the current reservation."""

    holder: Identity
    ends_seconds: float
    waiting: int


@dataclass(eq=False, slots=True)
class Wish:
    """Somebody who asked for a reservation."""

    holder: Identity
    seconds: float


@dataclass(eq=False, slots=True)
class _ReservationState:
    """The current reservation. Times are of the monotonic clock, and infinite until it begins."""

    holder: Identity
    seconds: float
    wish: Wish | None
    since: float
    """When it was granted: from then on calls of others are kept out."""
    key: str = ""
    ends: float = math.inf
    lease_ends: float = math.inf
    kept_out: bool = False
    """Whether calls of others were refused meanwhile."""

    @property
    def over(self) -> float:
        """When it ends, unless it is renewed."""
        return min(self.ends, self.lease_ends)


def _nobody(_event: str, _holder: Identity, _seconds: float) -> None:
    """Nobody is told."""


class Reservations:
    """One reservation at a time. The caller holds a lock.

    ``tell`` is called with what happened, to whom, and how many seconds are left.
    """

    def __init__(
        self,
        rules: ReservationRules,
        keys: ReservationKeys,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        tell: Callable[[str, Identity, float], object] = _nobody,
    ) -> None:
        self._rules, self._keys = rules, keys
        self._now, self._wall, self._tell = now, wall, tell
        self._held: _ReservationState | None = None
        self._queue: list[Wish] = []
        self._gaps: dict[str, float] = {}
        """When the gap of each tenant is over."""
        self._free_until = -math.inf
        """Until when the device is for these calls."""
        self._restores_until = now() + (rules.lease if keys.outlive_the_process else 0.0)
        self._last_start = -math.inf
        """When the latest reservation that is known here was granted, since 1970."""

    # --- Asking -----------------------------------------------------------------------------------

    def ask(self, holder: Identity, seconds: float) -> Wish:
        """Puts somebody at the end of the queue. Raises MessageError."""
        if not 0 < seconds <= self._rules.longest:
            raise MessageError(
                f"seconds: expected more than 0 and at most {self._rules.longest:g} (setting "
                f"max_reservation), found {seconds:g}",
                limit=f"{self._rules.longest:g}",
                setting="max_reservation",
            )
        wish = Wish(holder, seconds)
        self._queue.append(wish)
        self.settle()
        return wish

    def is_granted(self, wish: Wish) -> bool:
        """Whether it has been granted and has not ended."""
        return self._held is not None and self._held.wish is wish

    def begin(self, wish: Wish) -> Granted:
        """The device is quiet: the time that was granted begins."""
        held, now, wall = self._held, self._now(), self._wall()
        assert held is not None  # noqa: S101  # it was granted
        assert held.wish is wish  # noqa: S101  # to this one
        self._last_start = wall
        held.key = self._keys.make(wish.holder, Term(wall, wall + wish.seconds))
        held.ends, held.lease_ends = now + wish.seconds, now + self._rules.lease
        self._tell("reserved", wish.holder, wish.seconds)
        return self._granted(held)

    def withdraw(self, wish: Wish) -> None:
        """The caller no longer wants the device, or could not have it."""
        if self.is_granted(wish):
            self._end("reservation given back", self._now())
        elif wish in self._queue:
            self._queue.remove(wish)
        self.settle()

    # --- Holding ----------------------------------------------------------------------------------

    def renew(self, key: str, holder: Identity) -> Granted:
        """Moves the end of the lease. Raises ReservedError where the reservation has ended.

        From now on the holder's current credential counts.
        """
        self.settle()
        held = self._entitled(key, holder)
        if held is None:
            raise self.lost()
        held.holder, held.lease_ends = holder, self._now() + self._rules.lease
        return self._granted(held)

    def release(self, key: str, holder: Identity) -> None:
        """Ends the reservation of a key. Does nothing if it has already ended."""
        self.settle()
        if self._entitled(key, holder) is not None:
            self._end("reservation released", self._now())
            self.settle()

    def release_any(self, event: str = "reservation released by an admin") -> None:
        """Ends the current reservation, whoever holds it."""
        self.settle()
        if self._held is not None:
            self._end(event, self._now())
            self.settle()

    def check(self, key: str, caller: Identity) -> None:
        """Raises ReservedError if a call may not run.

        While the device is reserved, only calls with the key run. The holder's calls without it do
        not. A call whose own reservation has ended does not run either.
        """
        if self._held is None and not key:
            return
        self.settle()
        if key and self._entitled(key, caller) is None:
            raise self.lost()
        if not key and self._held is not None:
            raise self.refusal()

    # --- Time -------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Ends a reservation whose time is over, and grants the device to the next caller."""
        now, held = self._now(), self._held
        if held is not None and now >= held.over:
            event = "reservation ended" if held.over == held.ends else "reservation not renewed"
            self._end(event, held.over)
        if self._held is None and now >= max(self._restores_until, self._free_until):
            ready = (wish for wish in self._queue if now >= self._gap_of(wish))
            if (wish := next(ready, None)) is not None:
                self._queue.remove(wish)
                self._held = _ReservationState(wish.holder, wish.seconds, wish, now)

    def seconds_to_change(self) -> float:
        """Seconds until ``settle`` has work to do, if nothing happens before; may be infinite."""
        if self._held is not None:
            return max(0.0, self._held.over - self._now())
        gaps = min((self._gap_of(wish) for wish in self._queue), default=math.inf)
        return max(0.0, max(gaps, self._restores_until, self._free_until) - self._now())

    # --- What is told -----------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The key of the current reservation; empty if there is none or it has not begun."""
        return self._held.key if self._held is not None else ""

    @property
    def is_free(self) -> bool:
        """Whether nobody has the device, as of the last look."""
        return self._held is None

    def shown(self) -> CurrentReservation | None:
        """The current reservation."""
        self.settle()
        held = self._held
        if held is None:
            return None
        return CurrentReservation(held.holder, self._left(held), len(self._queue))

    def refusal(self, wish: Wish | None = None) -> ReservedError:
        """The error for other callers. ``wish``: of a caller that asked for a reservation."""
        if wish is None and self._held is not None:
            self._held.kept_out = True
        before = self._queue.index(wish) if wish in self._queue else len(self._queue)
        left = 0.0 if self._held is None else self._left(self._held)
        wait = left + sum(each.seconds for each in self._queue[:before])
        if wish is not None:
            wait = max(wait, self._earliest(wish) - self._now())
        if wish is not None and self.is_granted(wish):
            before, left, wait = 0, 0.0, _SOON_SECONDS
        if wish is None:  # a call looks again before the end, since the device may be released
            wait = min(wait / _LOOKS, _LOOK_SECONDS)
        delay = max(wait, _SOON_SECONDS)
        return ReservedError(
            f"{self._obstacle(wish, left)}; {retry_in(delay)}",
            retry_after=delay,
            ends_seconds=f"{left:.3f}",
            position=str(before + 1),
        )

    def _obstacle(self, wish: Wish | None, left: float) -> str:
        """Why nobody else has the device now."""
        if wish is not None and self.is_granted(wish):
            return "calls of others still run on the device"
        if self._held is not None or wish is None:
            who = "somebody else" if self._held is None else shown(self._held.holder.person)
            return f"{who} has reserved the device for {left:.0f} s more"
        seconds = self._earliest(wish) - self._now()
        if self._free_until > max(self._gap_of(wish), self._restores_until):
            return f"calls that were kept out have the device, for {seconds:.1f} s more"
        if self._gap_of(wish) > self._restores_until:
            return f"a tenant waits between two reservations, {seconds:.0f} s now"
        return (
            "the server has restarted and keeps the device for reservations of before "
            f"(reservation_key), for {seconds:.0f} s more"
        )

    def lost(self) -> ReservedError:
        """The error for a holder whose reservation has ended."""
        left = self._left(self._held) if self._held is not None else 0.0
        return ReservedError(
            "the reservation has ended: it was released, its time is over, or nobody renewed it "
            f"for {self._rules.lease:g} s; reserve again",
            ends_seconds=f"{left:.3f}",
        )

    # --- Parts ------------------------------------------------------------------------------------

    def _entitled(self, key: str, caller: Identity) -> _ReservationState | None:
        """The reservation of a key, if it has not ended and the key is this caller's."""
        held = self._held
        if held is None or not held.key or not same(held.key, key):
            return self._restored(key, caller)
        return held if person_of(held.holder) == person_of(caller) else None

    def _restored(self, key: str, caller: Identity) -> _ReservationState | None:
        """The reservation of a key from before the restart; see the table."""
        now, wall = self._now(), self._wall()
        term = self._keys.read(key, caller) if now < self._restores_until else None
        if term is None or wall >= term.end or term.start <= self._last_start:
            return None
        left = min(term.end - wall, term.end - term.start)
        self._last_start = term.start
        self._held = _ReservationState(
            caller, left, None, now, key, now + left, now + self._rules.lease
        )
        self._tell("reservation restored", caller, left)
        return self._held

    def _end(self, event: str, when: float) -> None:
        held = self._held
        assert held is not None  # noqa: S101  # there is one
        self._held = None
        self._gaps = {tenant: end for tenant, end in self._gaps.items() if end > when}
        lasted = max(0.0, when - held.since)
        gap = when + min(self._rules.gap, lasted)
        if held.kept_out:
            self._free_until = when + min(self._rules.gap, max(lasted, _LEAST_GAP_SECONDS))
        tenant = held.holder.tenant
        self._gaps[tenant] = max(gap, self._gaps.get(tenant, gap))
        self._tell(event, held.holder, 0.0)

    def _earliest(self, wish: Wish) -> float:
        """When it can be granted, if the device is free."""
        return max(self._gap_of(wish), self._restores_until, self._free_until)

    def _gap_of(self, wish: Wish) -> float:
        return self._gaps.get(wish.holder.tenant, -math.inf)

    def _left(self, held: _ReservationState) -> float:
        """Seconds until its end, at the latest."""
        return held.seconds if held.ends == math.inf else max(0.0, held.ends - self._now())

    def _granted(self, held: _ReservationState) -> Granted:
        left = self._left(held)
        return Granted(held.key, left, min(left, self._rules.lease))
