"""What a client knows about the members of its pool, and which one gets the next call. No I/O.

Calls go to members that have themselves said what they are; see ``asking`` and ``kinds``.
"""

from __future__ import annotations

import copy
import threading
import time
from dataclasses import replace
from random import random
from typing import TYPE_CHECKING, Generic, TypeVar

from npucall.errors import Repeat
from npucall_client.pool.asking import Asking
from npucall_client.pool.candidate import Candidate
from npucall_client.pool.kinds import Fitting
from npucall_client.pool.picking import COST_BYTES, NOTHING, Wanted, serving
from npucall_client.sending.threads import THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from npucall.errors import NpucallError
    from npucall_client.pool.members import Member
    from npucall_client.pool.picking import Requirements
    from npucall_client.sending.senders import Sender

T = TypeVar("T")

_CALLS_A_MEMBER = 32
"""Calls after which it connects to one more, so that a client with many calls uses all members."""
_SHORTEST_REST, _LONGEST_REST = 1.0, 30.0
"""Seconds for which a member that failed is not called; twice as long each time."""
_ERRORS_IN_A_ROW = 5
"""After so many errors of its own a member gets no calls for a while, as load balancers do it."""
_STALE_SECONDS = 60.0
"""After this time the client computes again which members it may call, even without a change."""
_NOTHING = 1e-6


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
        self._fits, self._asking = Fitting(wish), Asking(clock)
        self._sender = sender
        self._lock = threading.Lock()
        self._changed = sender.condition(self._lock)
        self._look_now = False
        self.catalogues: dict[int, frozenset[tuple[str, str]]] = {}
        """Names and variants of the operators, by ``Member.catalogue``."""
        self._clock = clock
        self._known: dict[str, Candidate[T]] = {}
        self._all = self._known.values()
        self._fitting: dict[Wanted, list[Candidate[T]]] = {}
        """The members that a call may go to, by its operator; computed again after each change."""
        self._until = 0.0
        """When that changes by itself."""
        self._taken = 0
        self._smallest = 0
        """Bytes that each member has room for."""

    # --- What others say about members ------------------------------------------------------------

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
            candidate.opened = member.instance
            candidate.member = replace(member, load=candidate.member.load)
            self._forget()

    # --- Who gets a call --------------------------------------------------------------------------

    def take(
        self,
        wanted: Wanted = NOTHING,
        tried: Collection[str] = (),
        only: Collection[str] | None = None,
        hosts: Collection[str] = (),
    ) -> Candidate[T] | None:
        """The member that gets a call, counted as under way there; None if the call has to wait.

        ``tried``: addresses to leave out; ``only``: no other addresses than these; ``hosts``:
        machines to take last. Raises NoMemberError.
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
            if self._asking.width < len(self._known) and (
                best.work >= 1 or not self._taken % _CALLS_A_MEMBER
            ):
                self._asking.width += 1
                self._hurry()
            best.own += 1.0 + wanted.nbytes / COST_BYTES
            best.weigh()
            return best

    def give_back(self, candidate: Candidate[T], nbytes: int, *, well: bool) -> None:
        """A call has ended there; ``well``: the member answered it."""
        with self._lock:
            own = candidate.own - 1.0 - nbytes / COST_BYTES
            candidate.own = own if own > _NOTHING else 0.0  # sums of floats are not exact
            candidate.weigh()
            if well:
                candidate.errors = 0
                if candidate.rest:
                    candidate.rest = 0.0
                    candidate.failure = None

    # --- What its calls say about a member --------------------------------------------------------

    def failed(self, candidate: Candidate[T], error: NpucallError) -> None:
        """A member could not be reached, broke off, or goes down: it gets no calls for a while."""
        with self._lock:
            self._rest(candidate, error)

    def erred(self, candidate: Candidate[T], error: NpucallError) -> None:
        """A member answered with an error of its own: after some in a row it rests, too.

        Never more than half of the members rest for that: it may be the calls that are wrong.
        """
        with self._lock:
            candidate.errors += 1
            resting = sum(bool(each.rests_until) for each in self._all)
            is_few = candidate.errors < _ERRORS_IN_A_ROW and not candidate.rest
            if not is_few and 2 * (resting + 1) <= len(self._known):
                self._rest(candidate, error)

    def busy(self, candidate: Candidate[T], error: NpucallError, seconds: float) -> None:
        """A member refuses calls for so many seconds."""
        with self._lock:
            candidate.failure = copy.copy(error)
            candidate.busy_until = self._clock() + seconds
            self._forget()

    def _rest(self, candidate: Candidate[T], error: NpucallError) -> None:
        candidate.failure = copy.copy(error)  # without its traceback, which would keep its call
        candidate.failed_at = now = self._clock()
        if candidate.rests_until <= now:  # of many calls that fail at once one counts
            candidate.rest = min(_LONGEST_REST, max(_SHORTEST_REST, 2 * candidate.rest))
            candidate.rests_until = now + candidate.rest
        self._forget()

    # --- Who is asked what it is, and if it serves ------------------------------------------------

    def to_ask(self) -> list[Candidate[T]]:
        """Members that are to be asked now; from here on they count as asked."""
        with self._lock:
            chosen = self._asking.chosen([e for e in self._all if self._fits.has(e.member)])
            for each in chosen:
                each.asked = True
            self._look_now = False
            return [*chosen]

    def asked(self, candidate: Candidate[T], error: NpucallError | None) -> None:
        """A member has said that it serves; or ``error`` says why it did not."""
        with self._lock:
            candidate.asked = False
            if error is None or error.repeat is Repeat.NEVER:
                self._asking.answered()
            if error is not None:
                self._rest(candidate, error)
            else:
                candidate.rests_until = 0.0
                self._forget()
            if not any(each.lives for each in self._all):
                self._hurry()

    def begins(self) -> bool:
        """Whether calls may begin: a member lives, and is of the kind of most living members.

        Raises NoMemberError, MixedPoolError, and the error if the members refuse this client.
        """
        with self._lock:
            fitting = [each for each in self._fits.of(self._all) if not each.rests_until]
            living = [each.member for each in fitting if each.is_proved]
            if not living:
                self._asking.check_refused(self._all)
                return False
            if not self._asking.is_settled(fitting):
                return False
            others = [e.member for e in fitting if not (e.is_proved or e.member.is_leaving)]
            if self._fits.choose(living, others):
                self._forget()
                return True
            self._asking.width = len(self._known)  # all are asked
            self._hurry()
            return False

    async def pause(self) -> None:
        """Waits until ``to_ask`` may have somebody."""
        with self._lock:
            seconds = self._asking.pause(self._all)
            await self._changed.wait_for(lambda: self._look_now, seconds)

    async def wait(self, seconds: float) -> None:
        """Waits until something changes."""
        with self._lock:
            await self._changed.wait(seconds)

    def wake(self) -> None:
        """Makes all that waits look again."""
        with self._lock:
            self._hurry()

    def _hurry(self) -> None:
        self._look_now = True
        self._changed.notify_all()

    # --- Who may be called ------------------------------------------------------------------------

    @property
    def known(self) -> Mapping[str, Candidate[T]]:
        """All of them, by address."""
        with self._lock:
            return dict(self._known)

    def of(self, address: str) -> Candidate[T] | None:
        """The member at an address; None if there is none."""
        return self._known.get(address)

    def allowed(self) -> list[Candidate[T]]:
        """The members that fit what the client wants. Raises NoMemberError."""
        with self._lock:
            return self._fits.of(self._all)

    def check(self, candidate: Candidate[T]) -> None:
        """Raises NoMemberError if it does not fit what the client wants."""
        self._fits.of([candidate])

    def _forget(self) -> None:
        """Something has changed: forgets which members may be called. With the lock held."""
        self._fitting.clear()
        rooms = [each.member.memory_limit for each in self._all]
        self._smallest = min((room for room in rooms if room), default=1 << 62)
        self._fits.name_odd_ones(self._all)
        self._look_now |= any(each.has_another and not each.asked for each in self._all)
        self._changed.notify_all()

    def _fit(self, wanted: Wanted) -> list[Candidate[T]]:
        now = self._clock()
        if not self._fitting:
            busy = [e.busy_until for e in self._all if e.busy_until > now]
            self._until = min(busy, default=now + _STALE_SECONDS)
        living = [each for each in self._fits.of(self._all) if each.is_proved]
        fitting = self._fitting[wanted] = serving(living, wanted, self.catalogues, now)
        return fitting

    def _left(
        self,
        wanted: Wanted,
        tried: Collection[str],
        only: Collection[str] | None,
        hosts: Collection[str],
    ) -> list[Candidate[T]]:
        """For a call that not every member can have: also members that have proved nothing yet."""
        every = [
            each
            for each in self._fits.of(self._all)
            if each.address not in tried and (only is None or each.address in only)
        ]
        every = serving(every, wanted, self.catalogues, self._clock(), reserved=only is not None)
        rooms = [(each, each.member.memory_limit or wanted.nbytes) for each in every]
        every = [each for each, room in rooms if wanted.nbytes <= room] or every
        every = [each for each in every if each.host not in hosts] or every
        return [each for each in every if each.is_proved] or every
