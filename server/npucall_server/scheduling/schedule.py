"""Schedule on a device: a fixed number, given by shares.

What a turn costs is the time for which it was held, by the host's clock.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from npucall_server.scheduling.shares import CLASS_WEIGHTS, Share, Shares
from npucall_server.settings.tenants import Tenants

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.errors import NpucallError
    from npucall_server.access.identity import Identity
    from npucall_server.accounts.endings import Endings
    from npucall_server.scheduling.call_turn import CallTurn


_LONG_NS = 100_000_000
"""What the account is told of a call before it has been answered."""


def _nobody_counts(identity: Identity, nanoseconds: int) -> None:
    del identity, nanoseconds


class Grant:
    """A turn that somebody has. As a context it is given back at its end.

    Nothing is charged for it until somebody else has to wait: most calls find a turn free.
    """

    share: Share[CallTurn] | None = None
    """Under which it is charged."""
    charged = 0.0
    turn: CallTurn
    since: float
    schedule: Schedule

    def __enter__(self) -> None:
        pass

    def __exit__(self, *raised: object) -> None:
        self.schedule.give_back(self)


class Schedule:
    """A fixed number of turns. Those who wait get them by their shares.

    ``tenants`` have the shares. ``spent`` hears now and then of a call that holds turns for long,
    for how many ns more; ``CallTurn.told_ns`` says of how many in all. ``clock`` counts seconds.
    ``endings`` is told who has turns.
    """

    def __init__(
        self,
        count: int,
        tenants: Tenants | None = None,
        spent: Callable[[Identity, int], object] = _nobody_counts,
        clock: Callable[[], float] = time.monotonic,
        endings: Endings | None = None,
    ) -> None:
        self.refusal: Callable[[], NpucallError] | None = None
        self._count = self.free = count
        """Turns that nobody has; while somebody waits for one, none is free."""
        self._tenants = tenants or Tenants({})
        self._spent, self._clock, self._endings = spent, clock, endings
        self._moved = clock()
        """When the first turn was taken, or the last one given back."""
        self._lock = threading.Lock()
        self._shares: Shares[CallTurn] = Shares()
        self._all = self._shares.all
        self._granted: dict[Grant, None] = {}
        """In the order in which they were given, so that what is charged comes in one order."""

    def take(self, turn: CallTurn) -> Grant | None:
        """Gives a turn now, or has the taker wait for ``CallTurn.grant`` and answers None."""
        with self._lock:
            if self.refusal is not None:
                raise self.refusal()
            if self.free:
                return self._grant(turn)
            self._share_what_runs()
            turn.share = self._share_of(turn)
            self._shares.queue(turn.share, turn)
            return None

    def is_stuck(self, seconds: float) -> bool:
        """Whether turns are taken and none has been given back for so many seconds."""
        return self.free < self._count and self._clock() - self._moved > seconds

    def moves(self) -> None:
        """A call with a turn makes progress."""
        self._moved = self._clock()

    def take_spare(self, turn: CallTurn) -> Grant | None:
        """Gives a turn if one is free, which it is only while nobody waits for it."""
        with self._lock:
            if self.refusal is not None or not self.free:
                return None
            return self._grant(turn)

    def give_back(self, grant: Grant, asking: CallTurn | None = None) -> Grant | None:
        """Hands the turn to the next one who waits; answers what ``asking`` got of it."""
        following, turn = None, grant.turn
        with self._lock:
            self._moved = now = self._clock()
            del self._granted[grant]
            if self._endings is not None:
                self._endings.is_over(turn.identity)
            self.free += 1
            seconds, share = now - grant.since, grant.share
            if share is not None:
                self._shares.charge(share, seconds - grant.charged)
                share.last_seconds = seconds
                self._shares.leave(share)
            turn.held_ns += int(seconds * 1e9)
            untold = turn.held_ns - turn.told_ns
            if untold >= _LONG_NS:
                turn.told_ns = turn.held_ns
            if self._all.waiting:
                following = self._hand_on(asking)
        if untold >= _LONG_NS:
            self._spent(turn.identity, untold)
        return following

    def pass_on(self, grant: Grant) -> Grant | None:
        """Swaps a turn for another: gives it now, or has the call wait for ``CallTurn.grant``."""
        turn, share = grant.turn, grant.share
        with self._lock:
            if share is None or not self._all.waiting:  # the waiting call has gone
                return grant
            turn.share = share
            self._shares.queue(share, turn)
        return self.give_back(grant, turn)

    def refuse(self, refusal: Callable[[], NpucallError]) -> None:
        """From now on nobody gets a turn: calls that wait or ask raise this error."""
        with self._lock:
            self.refusal = refusal
            waiting = self._shares.everything_waiting()
        for turn in waiting:
            turn.wake()

    @property
    def running(self) -> int:
        """Turns that are taken."""
        return self._count - self.free

    @property
    def waiting(self) -> int:
        """How many calls wait for a turn."""
        return self._all.waiting

    def give_up(self, turn: CallTurn) -> None:
        """Takes a waiting call out of the queue. A turn that came meanwhile goes to the next."""
        with self._lock:
            if turn.share is not None and self._shares.withdraw(turn.share, turn):
                return
            grant = turn.granted
        if grant is not None:
            self.give_back(grant)

    def _share_of(self, turn: CallTurn) -> Share[CallTurn]:
        identity = turn.identity
        tenant = self._tenants.of(identity.tenant)
        kind = tenant.scheduling_class
        return self._shares.of(
            (
                (kind, CLASS_WEIGHTS[kind]),
                (identity.tenant, tenant.weight),
                (identity.owner, 1.0),
            )
        )

    def _grant(self, turn: CallTurn, share: Share[CallTurn] | None = None) -> Grant:
        """Gives a turn that is free. ``share``: where the call waited for it."""
        now = self._clock()
        if self.free == self._count:
            self._moved = now
        self.free -= 1
        grant = Grant()
        grant.schedule, grant.turn, grant.since, grant.share = self, turn, now, share
        self._granted[grant] = None
        if self._endings is not None:
            self._endings.begins(turn.identity)
        if share is not None:
            self._charge(grant)
        elif self._all.active:
            self._share_what_runs()
        return grant

    def _share_what_runs(self) -> None:
        """Puts running calls under the shares from now on, since others want turns too."""
        for grant in self._granted:
            if grant.share is None:
                grant.share = self._share_of(grant.turn)
                self._shares.serve(grant.share)
                self._charge(grant)

    def _charge(self, grant: Grant) -> None:
        """Charges what the caller's last turn took; the rest, or what is too much, in the end."""
        assert grant.share is not None  # noqa: S101  # the caller has given it one
        charged = grant.share.last_seconds
        self._shares.charge(grant.share, charged - grant.charged)
        grant.charged = charged

    def _hand_on(self, asking: CallTurn | None = None) -> Grant | None:
        """Gives what is free to those who are next; answers what ``asking`` got."""
        own = None
        while self.refusal is None and self.free and self._all.waiting:
            self._charge_what_runs()
            turn = self._shares.next()
            assert turn is not None  # noqa: S101  # it waited
            grant = self._grant(turn, turn.share)
            if turn is asking:
                own = grant
            else:
                turn.grant(grant)
        return own

    def _charge_what_runs(self) -> None:
        """Charges turns for what they have taken by now, where that is more than was thought."""
        now = self._clock()
        for grant in self._granted:
            more = now - grant.since - grant.charged
            if more > 0 and grant.share is not None:
                self._shares.charge(grant.share, more)
                grant.charged += more
