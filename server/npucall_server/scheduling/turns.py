"""Turns on a device: a fixed number, given by shares.

What a turn costs is the time for which it was held, by the host's clock.

A turn alone is all of the device. A call that waits for one becomes next by its share, as others
do. From then on turns that others give back are kept for it, until it has all. It is charged for
all turns, from when it was next, so no caller gets more of the device by being alone.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from npucall_server.scheduling.shares import CLASS_WEIGHTS, Shares
from npucall_server.settings.tenants import Tenants

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.errors import NpucallError
    from npucall_server.access.identity import Identity
    from npucall_server.scheduling.shares import Share
    from npucall_server.scheduling.turn import Turn


_LONG_NS = 100_000_000
"""What the account is told of a call before it has been answered."""


def _nobody_counts(identity: Identity, nanoseconds: int) -> None:
    del identity, nanoseconds


class Grant:
    """A turn that somebody has.

    Nothing is charged for it until somebody else has to wait: most calls find a turn free.
    """

    __slots__ = ("alone", "charged", "lanes", "share", "since", "turn")

    def __init__(self, turn: Turn, since: float, lanes: int = 1) -> None:
        self.turn, self.since = turn, since
        self.lanes = lanes
        """How many turns it costs: of a turn alone all, and of its further ones none."""
        self.alone = False
        self.share: Share[Turn] | None = None
        self.charged = 0.0


class Turns:
    """A fixed number of turns. Those who wait get them by their shares.

    ``tenants`` have the shares. ``spent`` hears now and then of a call that holds turns for long,
    for how many ns more; ``Turn.told_ns`` says of how many in all. ``clock`` counts seconds.
    """

    def __init__(
        self,
        count: int,
        tenants: Tenants | None = None,
        spent: Callable[[Identity, int], object] = _nobody_counts,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.refusal: Callable[[], NpucallError] | None = None
        self._count = self._free = count
        self._tenants = tenants or Tenants({})
        self._spent, self._clock = spent, clock
        self._moved = clock()
        """When the first turn was taken, or the last one given back."""
        self._lock = threading.Lock()
        self._shares: Shares[Turn] = Shares()
        self._granted: dict[Grant, None] = {}
        """In the order in which they were given, so that what is charged comes in one order."""
        self._claim: Turn | None = None
        """The call that is next and waits for all of the device."""
        self._claimed = 0.0
        """Since when."""
        self._kept = 0
        """Free turns that are kept for the claim, or for the turn alone."""
        self._alone: Grant | None = None
        self._further = 0
        """Further turns of the call that is alone, after its first."""

    def take(self, turn: Turn) -> Grant | None:
        """Gives a turn now, or has the taker wait for ``Turn.grant`` and answers None."""
        with self._lock:
            if self.refusal is not None:
                raise self.refusal()
            if self._free:
                return self._take(turn)
            self._share_what_runs()
            turn.share = self._share_of(turn)
            self._shares.queue(turn.share, turn)
            return None

    def take_alone(self, turn: Turn, *, must: bool) -> Grant | None:
        """``take`` for a turn alone. Unless it ``must``, a turn that is not alone will do."""
        with self._lock:
            if self.refusal is not None:
                raise self.refusal()
            if self._free == self._count:
                return self._close(self._take(turn))
            if self._free and not must:
                return self._take(turn)
            self._share_what_runs()
            turn.share = self._share_of(turn)
            self._shares.queue(turn.share, turn)
            self._hand_on()
            return None

    def is_stuck(self, seconds: float) -> bool:
        """Whether turns are taken and none has been given back for so many seconds."""
        return self._free < self._count and self._clock() - self._moved > seconds

    def moves(self) -> None:
        """A call with a turn makes progress."""
        self._moved = self._clock()

    def take_spare(self, turn: Turn) -> Grant | None:
        """Gives a turn if one is free, which it is only while nobody waits for it."""
        with self._lock:
            if self.refusal is not None:
                return None
            if not self._free:
                return self._take_further(turn) if self._alone is not None else None
            return self._take(turn)

    def give_back(self, grant: Grant) -> None:
        """Hands the turn to the next one who waits."""
        with self._lock:
            untold = self._end(grant)
            self._hand_on()
        if untold:
            self._spent(grant.turn.identity, untold)

    def pass_on(self, grant: Grant) -> Grant | None:
        """Swaps a turn for another: gives it now, or has the call wait for ``Turn.grant``."""
        turn, share = grant.turn, grant.share
        with self._lock:
            if share is None or grant.alone:  # the waiting call has gone, or goes on waiting
                return grant
            turn.share = share
            self._shares.queue(share, turn)
            untold = self._end(grant)
            following = self._hand_on(turn)
        if untold:
            self._spent(turn.identity, untold)
        return following

    def refuse(self, refusal: Callable[[], NpucallError]) -> None:
        """From now on nobody gets a turn: calls that wait or ask raise this error."""
        with self._lock:
            self.refusal = refusal
            waiting = self._shares.everything_waiting()
            if self._claim is not None:
                waiting.append(self._claim)
        for turn in waiting:
            turn.wake()

    @property
    def running(self) -> int:
        """Turns that are taken, or kept for the call that will have all."""
        return self._count - self._free

    @property
    def waiting(self) -> int:
        """How many calls wait for a turn."""
        return self._shares.waiting + (self._claim is not None)

    def give_up(self, turn: Turn) -> None:
        """Takes a waiting call out of the queue. A turn that came meanwhile goes to the next."""
        with self._lock:
            if turn is self._claim:
                self._drop_claim()
                self._hand_on()
                return
            if turn.share is not None and self._shares.withdraw(turn.share, turn):
                return
            grant = turn.granted
        if grant is not None:
            self.give_back(grant)

    def _share_of(self, turn: Turn) -> Share[Turn]:
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

    def _take(self, turn: Turn) -> Grant:
        """Gives a turn that is free."""
        grant = self._grant(turn)
        if self._free == self._count - 1:
            self._moved = grant.since
        if self._shares.active:
            self._share_what_runs()
        return grant

    def _close(self, grant: Grant) -> Grant:
        """Makes a turn one alone, where nobody has another."""
        grant.alone, grant.lanes = True, self._count
        if grant.share is not None:
            self._charge(grant)
        self._kept, self._free = self._free, 0
        self._alone = grant
        return grant

    def _take_further(self, turn: Turn) -> Grant | None:
        """One more turn for the call that is alone. It is free, since that call pays for all."""
        assert self._alone is not None  # noqa: S101  # the caller has looked
        if self._alone.turn is not turn or self._further >= self._count - 1:
            return None
        self._further += 1
        grant = Grant(turn, self._clock(), 0)
        self._granted[grant] = None
        return grant

    def _drop_claim(self) -> None:
        """The next call no longer wants all of the device. It pays for the turns that were kept."""
        turn, self._claim = self._claim, None
        assert turn is not None  # noqa: S101  # the caller has looked
        assert turn.share is not None  # noqa: S101  # it was in the queue
        self._shares.charge(turn.share, self._cost_of_claim())
        self._shares.leave(turn.share)
        self._free, self._kept = self._kept, 0

    def _cost_of_claim(self) -> float:
        return (self._clock() - self._claimed) * self._count

    def _grant(self, turn: Turn) -> Grant:
        self._free -= 1
        grant = Grant(turn, self._clock())
        self._granted[grant] = None
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
        charged = grant.share.last_seconds * grant.lanes
        self._shares.charge(grant.share, charged - grant.charged)
        grant.charged = charged

    def _end(self, grant: Grant) -> int:
        """Charges a turn that has ended; answers the ns that the account has to be told of."""
        self._moved = now = self._clock()
        self._granted.pop(grant, None)
        self._free_what_had(grant)
        seconds, share = now - grant.since, grant.share
        cost = seconds * grant.lanes
        if share is not None:
            self._shares.charge(share, cost - grant.charged)
            share.last_seconds = seconds
            self._shares.leave(share)
        turn = grant.turn
        turn.held_ns += int(cost * 1e9)
        untold = turn.held_ns - turn.told_ns
        if untold < _LONG_NS:
            return 0
        turn.told_ns = turn.held_ns
        return untold

    def _free_what_had(self, grant: Grant) -> None:
        if not grant.lanes:
            self._further -= 1
        elif self._claim is not None:
            self._kept += 1
        else:
            self._free += 1
            if grant.alone:
                self._free, self._kept, self._alone = self._count, 0, None

    def _hand_on(self, asking: Turn | None = None) -> Grant | None:
        """Gives what is free to those who are next; answers what ``asking`` got."""
        own = None
        while self.refusal is None and (turn := self._next()) is not None:
            grant = self._grant(turn)
            grant.share = turn.share
            self._charge(grant)
            if turn.wants_alone and self._free == self._count - 1:
                self._close(grant)
            if turn is asking:
                own = grant
            else:
                turn.grant(grant)
        return own

    def _next(self) -> Turn | None:
        """The call that gets a free turn; None if there is no turn, or nobody may have it."""
        if self._claim is None and self._free and self._shares.waiting:
            self._charge_what_runs()
            turn = self._shares.next()
            assert turn is not None  # noqa: S101  # it waited
            if not turn.must_be_alone or self._free == self._count:
                return turn
            self._claim, self._claimed = turn, self._clock()
            self._kept, self._free = self._free, 0
        turn = self._claim
        if turn is None or self._kept < self._count:
            return None
        assert turn.share is not None  # noqa: S101  # it was in the queue
        self._shares.charge(turn.share, self._cost_of_claim())
        self._claim = None
        self._free, self._kept = self._kept, 0
        return turn

    def _charge_what_runs(self) -> None:
        """Charges turns for what they have taken by now, where that is more than was thought."""
        now = self._clock()
        for grant in self._granted:
            more = (now - grant.since) * grant.lanes - grant.charged
            if more > 0 and grant.share is not None:
                self._shares.charge(grant.share, more)
                grant.charged += more
