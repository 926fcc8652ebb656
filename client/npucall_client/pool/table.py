"""What a client knows about the members of its pool, and which one gets the next call. No I/O."""

from __future__ import annotations

import copy
import threading
import time
from dataclasses import replace
from random import random
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from npucall_client.pool.candidate import Candidate
from npucall_client.pool.members import MemberState
from npucall_client.pool.picking import COST_BYTES, check_alike, none_fits
from npucall_client.sending.threads import THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from npucall.errors import NpucallError
    from npucall_client.pool.members import Member
    from npucall_client.pool.picking import Requirements
    from npucall_client.sending.senders import Sender

T = TypeVar("T")

_WIDTH = 4
"""Members that a client connects to at first; it connects to others when those are busy."""
_CALLS_A_MEMBER = 32
"""Calls after which it connects to one more, so that a client with many calls uses all members."""
_SHORTEST_REST, _LONGEST_REST = 1.0, 30.0
"""Seconds for which a member that failed is not called; twice as long each time."""


_LOOK_SECONDS = 60.0
"""After this time the client computes again which members it may call, even without a change."""
_EAGER_SECONDS = 0.1
"""Between two looks at a pool in which no member serves."""


_NOTHING = 1e-6


class Wanted(NamedTuple):
    """What one call wants of its member."""

    operator: str = ""
    variant: str = ""
    nbytes: int = 0


NOTHING = Wanted()


class Table(Generic[T]):
    """The members of a pool. Safe to use from several threads.

    A call that waits may find a member once something has changed.
    """

    def __init__(
        self,
        wish: Requirements,
        sender: Sender = THREADS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wish = wish
        self._sender = sender
        self._lock = threading.Lock()
        self._changed = sender.condition(self._lock)
        self.catalogues: dict[int, frozenset[tuple[str, str]]] = {}
        """Names and variants of the operators, by ``Member.catalogue``."""
        self._clock = clock
        self._known: dict[str, Candidate[T]] = {}
        self._fitting: dict[Wanted, list[Candidate[T]]] = {}
        """The members that a call may go to, by its operator; computed again after each change."""
        self._until = 0.0
        """When that changes by itself."""
        self._width = _WIDTH
        self._taken = 0
        self._smallest = 0
        """Bytes that each member has room for."""

    def update(self, members: Sequence[Member], *, complete: bool) -> list[Candidate[T]]:
        """Takes what a source lists. Returns the members that are gone, to close their links."""
        with self._lock:
            for member in members:
                known = self._known.get(member.address)
                if known is None:
                    known = self._known[member.address] = Candidate(member, self._sender.lock())
                known.hear(member)
            listed = {member.address for member in members}
            gone = [each for name, each in self._known.items() if name not in listed]
            if not complete:
                gone = []
            for each in gone:
                del self._known[each.address]
            self._forget()
            return gone

    def learn(self, candidate: Candidate[T], member: Member) -> None:
        """Takes what a member says about itself."""
        with self._lock:
            candidate.member = replace(member, load=candidate.member.load)
            self._forget()

    def take(
        self,
        wanted: Wanted = NOTHING,
        tried: Collection[str] = (),
        only: Collection[str] | None = None,
        hosts: Collection[str] = (),
    ) -> Candidate[T] | None:
        """The member that gets a call, counted as under way there; None if the call has to wait.

        ``tried``: addresses to leave out; ``only``: no other addresses than these; ``hosts``:
        machines to take last. Raises NoMemberError, MixedPoolError.
        """
        with self._lock:
            if self._clock() >= self._until:
                self._fitting.clear()
            # If all members have the same operators, one list serves all calls.
            key = wanted._replace(nbytes=0) if self.catalogues else NOTHING
            fitting = self._fitting.get(key)
            if fitting is None:
                fitting = self._fit(key)
            if tried or only is not None or hosts or wanted.nbytes > self._smallest:
                fitting = self._left(wanted, tried, only, hosts)
            count = len(fitting)
            if not count:
                return None
            best = fitting[0]
            if count > 1:
                # The better of two at random: the best would get the calls of all clients.
                first = int(random() * count)  # noqa: S311  # no secret
                second = int(random() * (count - 1))  # noqa: S311  # no secret
                best, other = fitting[first], fitting[second + (second >= first)]
                if other.work < best.work:
                    best = other
            self._taken += 1
            if self._width < len(self._known) and (
                best.work >= 1 or not self._taken % _CALLS_A_MEMBER
            ):
                self._width += 1  # from the next call on
                self._fitting.clear()
            best.own += 1.0 + wanted.nbytes / COST_BYTES
            best.weigh()
            return best

    def give_back(self, candidate: Candidate[T], nbytes: int, *, well: bool) -> None:
        """A call has ended there; ``well``: the member answered it."""
        with self._lock:
            own = candidate.own - 1.0 - nbytes / COST_BYTES
            candidate.own = own if own > _NOTHING else 0.0  # sums of floats are not exact
            candidate.weigh()
            if well and candidate.rest:
                candidate.rest = 0.0
                candidate.failure = None

    def failed(self, candidate: Candidate[T], error: NpucallError) -> None:
        """A member could not be reached, broke off, or goes down: it gets no calls for a while."""
        with self._lock:
            candidate.failure = copy.copy(error)  # without its traceback, which would keep its call
            now = self._clock()
            if candidate.rests_until <= now:  # of many calls that fail at once one counts
                candidate.rest = min(_LONGEST_REST, max(_SHORTEST_REST, 2 * candidate.rest))
                candidate.rests_until = now + candidate.rest
            self._forget()

    def busy(self, candidate: Candidate[T], error: NpucallError, seconds: float) -> None:
        """A member refuses calls for so many seconds."""
        with self._lock:
            candidate.failure = copy.copy(error)
            candidate.busy_until = self._clock() + seconds
            self._forget()

    def to_ask(self) -> list[Candidate[T]]:
        """Members whose rest has ended; if all members rest, all of them.

        From now on they count as asked.
        """
        with self._lock:
            due = self._due(self._clock())
            for each in due:
                each.asked = True
            return due

    def _due(self, now: float) -> list[Candidate[T]]:
        every = self._known.values()
        last = now if any(not each.rests_until for each in every) else float("inf")
        return [each for each in every if 0 < each.rests_until <= last and not each.asked]

    def asked(self, candidate: Candidate[T], error: NpucallError | None) -> None:
        """A member has said that it serves; or ``error`` says why it did not."""
        with self._lock:
            candidate.asked = False
        if error is not None:
            self.failed(candidate, error)
            return
        with self._lock:
            candidate.rests_until = 0.0
            self._forget()

    def next_look(self) -> float:
        """Seconds after which ``to_ask`` may have a member."""
        with self._lock:
            resting = [each.rests_until for each in self._known.values() if each.rests_until]
            if resting and len(resting) == len(self._known):
                return _EAGER_SECONDS
            return max(_EAGER_SECONDS, min([1.0, *(each - self._clock() for each in resting)]))

    async def wait(self, seconds: float) -> None:
        """Waits until something changes."""
        with self._lock:
            await self._changed.wait(seconds)

    def wake(self) -> None:
        """Makes all waiting calls look again."""
        with self._lock:
            self._changed.notify_all()

    @property
    def known(self) -> Mapping[str, Candidate[T]]:
        """All of them, by address."""
        with self._lock:
            return dict(self._known)

    def of(self, address: str) -> Candidate[T] | None:
        """The member at an address; None if there is none."""
        return self._known.get(address)

    def allowed(self) -> list[Candidate[T]]:
        """The members that fit what the client wants. Raises NoMemberError, MixedPoolError."""
        with self._lock:
            return self._allowed()

    def _forget(self) -> None:
        """Something has changed: forgets which members may be called. With the lock held."""
        self._fitting.clear()
        rooms = [each.member.memory_limit for each in self._known.values()]
        self._smallest = min((room for room in rooms if room), default=1 << 62)
        self._changed.notify_all()

    def _fit(self, wanted: Wanted) -> list[Candidate[T]]:
        now = self._clock()
        if not self._fitting:
            busy = [e.busy_until for e in self._known.values() if e.busy_until > now]
            self._until = min(busy, default=now + _LOOK_SECONDS)
        fitting = self._fitting[wanted] = _nearest(self._serving(wanted, now), self._width)
        return fitting

    def _left(
        self,
        wanted: Wanted,
        tried: Collection[str],
        only: Collection[str] | None,
        hosts: Collection[str],
    ) -> list[Candidate[T]]:
        every = self._serving(wanted, self._clock(), tried, only)
        rooms = [(each, each.member.memory_limit or wanted.nbytes) for each in every]
        every = [each for each, room in rooms if wanted.nbytes <= room] or every
        return [each for each in every if each.host not in hosts] or every

    def _serving(
        self,
        wanted: Wanted,
        now: float,
        tried: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> list[Candidate[T]]:
        """Members that may be called now; suspects and reserved ones only if there are no others.

        What a source says about reservations is a second old, and only the member has the details.
        """
        serving = [
            each
            for each in self._allowed()
            if not each.rests_until
            and each.busy_until <= now
            and each.member.state is not MemberState.DRAINING
            and each.address not in tried
            and (only is None or each.address in only)
        ]
        serving = [each for each in serving if self._has(each, wanted)] or serving
        if only is None:
            serving = [each for each in serving if not _is_reserved(each)] or serving
        well = [each for each in serving if each.member.state is MemberState.SERVING]
        return well or serving

    def _allowed(self) -> list[Candidate[T]]:
        allowed = [each for each in self._known.values() if self.wish.allows(each.member)]
        if self._known and not allowed:
            raise none_fits(self.wish, [each.member for each in self._known.values()])
        check_alike(self.wish, [each.member for each in allowed])
        return allowed

    def _has(self, candidate: Candidate[T], wanted: Wanted) -> bool:
        operators = self.catalogues.get(candidate.member.catalogue)
        if operators is None or not wanted.operator:
            return True
        if wanted.variant:
            return (wanted.operator, wanted.variant) in operators
        return (wanted.operator, "") in operators


def _is_reserved(candidate: Candidate[Any]) -> bool:
    load = candidate.member.load
    return load is not None and load.reserved


def _nearest(candidates: list[Candidate[Any]], width: int) -> list[Candidate[Any]]:
    """Members with a link first, so that a client with few calls uses few members."""
    return sorted(candidates, key=lambda each: (each.link is None, each.order))[:width]
