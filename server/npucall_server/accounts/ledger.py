"""A ledger of something that callers share: how much of it each holds. Bytes, places, streams ...

It is a tree. Below all of it are the tenants, below each tenant its owners, and there may be a
session instead of an owner. What somebody takes counts in one walk up, at each of them. Each may
have a limit of its own. Strangers, of whom nobody knows anything yet, have one limit together.

While there is room, nobody looks further. Where there is none, ``giving_way`` says what is ended
for those who ask.
"""

from __future__ import annotations

import math
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from npucall_server.accounts.giving_way import is_greedy, path_of, who_gives_way
from npucall_server.accounts.waiting import about_to_wait

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.errors import NpucallError
    from npucall_server.access.callers import Caller
    from npucall_server.settings.tenants import Tenants

    Refusal: TypeAlias = "Callable[[Holder, int], NpucallError]"
    """Makes the error where a holder has no room for so much more."""

NO_LIMIT = sys.maxsize
_GIVE_WAY_SECONDS = 1.0
"""How long a caller waits until others have given back what they were told to."""
_MANY_OWNERS = 256
"""So many owners may be remembered, though they hold nothing."""


class Quota(NamedTuple):
    """What each tenant may hold of something, by the current settings file."""

    tenants: Tenants
    name: str
    refusal: Refusal

    def limit_of(self, tenant: str) -> int:
        """The limit of a tenant."""
        limit: int | None = getattr(self.tenants.of(tenant), self.name)
        return NO_LIMIT if limit is None else limit


class Entry:
    """What one call, stream, message or region holds. The one that took it gives it back."""

    __slots__ = ("amount", "holder", "idle_since", "leaving", "peer", "yields")

    def __init__(
        self,
        holder: Holder,
        amount: int,
        peer: str = "",
        yields: Callable[[], object] | None = None,
    ) -> None:
        self.holder, self.amount, self.peer = holder, amount, peer
        self.yields = yields
        """Ends it for others who ask, or answers False; None while it cannot be ended."""
        self.idle_since: float | None = None
        """Since when it has not been used. After a while it may be ended for anybody who asks."""
        self.leaving = False
        """Whether it has been told to end."""

    @property
    def owner(self) -> str:
        """The owner that it counts for."""
        return self.holder.name

    def may_end_by(self, end: Callable[[], object]) -> None:
        """``end`` ends it for others who ask, while it is not given back."""
        if self in self.holder.entries:
            self.yields = end

    def must_stay(self) -> None:
        """From now on others cannot end it, even if it was told to end: that came too late."""
        self.yields, self.leaving = None, False

    def give_back(self) -> None:
        """Gives all of it back, to those who wait. A second time does nothing."""
        holder = self.holder
        ledger = holder.ledger
        with ledger.lock:
            if holder.entries.pop(self, self) is self:
                return
            self.yields = None  # what is given back keeps nothing alive
            node: Holder | None = holder
            while node is not None:
                node.used -= self.amount
                node = node.parent
            if ledger.waiting:
                ledger.grant()


class Holder:
    """Somebody who holds parts: an owner or a session, a tenant, or all of them together."""

    __slots__ = ("entries", "ledger", "limit", "name", "parent", "refusal", "used")

    def __init__(
        self, name: str, ledger: Ledger, parent: Holder | None, limit: int, refusal: Refusal | None
    ) -> None:
        self.name, self.ledger, self.parent = name, ledger, parent
        self.limit, self.refusal = limit, refusal
        self.used = 0
        """How much it holds, with all below it."""
        self.entries: dict[Entry, None] = {}
        """What it holds by itself, the oldest first."""


class Ledger:
    """An amount of something that callers take parts of.

    ``limit`` and ``refusal``: for all together. ``quota``: for each tenant. ``is_known``: whether
    an owner without a tenant is no stranger; None: no owner is one. Strangers have three quarters.
    If others can be told to give way, the asking caller first waits for that, at most a second.
    """

    def __init__(
        self,
        limit: int = NO_LIMIT,
        refusal: Refusal | None = None,
        quota: Quota | None = None,
        is_known: Callable[[str], bool] | None = None,
    ) -> None:
        self.lock = threading.RLock()  # the garbage collector gives regions back in any thread
        self.waiting: dict[Entry, threading.Event] = {}
        """Those who wait for others to give way, and what tells them that they have it."""
        self.all = Holder("", self, None, limit, refusal)
        """What everybody holds."""
        self._is_known = is_known or (lambda _: True)
        self.strangers = Holder("", self, self.all, max(limit * 3 // 4, 1), refusal)
        """What those hold of whom nothing is known yet."""
        self.before_asking: Callable[[], object] = bool
        """Is called where there is no room, before anybody is told to give way."""
        self._quota = quota
        self._tables = quota.tenants.by_name if quota is not None else None
        self._tenants: dict[str, Holder] = {}
        self._owners: dict[str, Holder] = {}
        self._many = _MANY_OWNERS

    @property
    def limit(self) -> int:
        """How much there is."""
        return self.all.limit

    @property
    def used(self) -> int:
        """How much everybody holds together."""
        return self.all.used

    def take(
        self, caller: Caller, amount: int, yields: Callable[[], object] | None = None
    ) -> Entry:
        """Takes a part, at once if there is room. Raises the refusal if there is none in time.

        ``yields`` ends it for others.
        """
        identity = caller.identity
        with self.lock:
            holder = self._owners.get(identity.owner) or self._new(identity.owner, identity.tenant)
            entry = Entry(holder, amount, caller.peer, yields)
            if self._adds(entry):
                return entry
            ending = self._ask(entry)
        return self._wait(entry, ending)

    def hold(
        self,
        owner: str,
        amount: int,
        tenant: str = "",
        yields: Callable[[], object] | None = None,
    ) -> Entry:
        """``take`` for what is bound to no connection."""
        with self.lock:
            holder = self._owners.get(owner) or self._new(owner, tenant)
            entry = Entry(holder, amount, "", yields)
            if self._adds(entry):
                return entry
            ending = self._ask(entry)
        return self._wait(entry, ending)

    def hold_spare(self, owner: str, amount: int, yields: Callable[[], object]) -> Entry | None:
        """Takes a part if nobody else asks for it; else None. ``yields`` ends it for anybody."""
        with self.lock:
            entry = Entry(self._owners.get(owner) or self._new(owner, ""), amount, "", yields)
            entry.idle_since = -math.inf
            return entry if not self.waiting and self._adds(entry) else None

    def count(self, owner: str, amount: int) -> None:
        """An owner holds so much, whether there is room for it or not."""
        with self.lock:
            holder = self._owners.get(owner) or (amount and self._new(owner, ""))
            if holder and (more := amount - holder.used):
                for node in (*path_of(holder), self.all):
                    node.used += more
                self.grant()

    def child(self, tenant: str, limit: int, refusal: Refusal) -> Holder:
        """Somebody of a tenant with a limit of its own, such as a session."""
        with self.lock:
            return Holder("", self, self._parent(tenant), limit, refusal)

    def take_for(self, child: Holder, amount: int) -> Entry:
        """``take`` for a child."""
        with self.lock:
            entry = Entry(child, amount)
            if self._adds(entry):
                return entry
            ending = self._ask(entry)
        return self._wait(entry, ending)

    @property
    def peers(self) -> set[str]:
        """Connections that hold a part, or wait for one."""
        with self.lock:
            held = (entry for owner in self._owners.values() for entry in owner.entries)
            return {entry.peer for entry in (*held, *self.waiting)}

    @property
    def owners(self) -> dict[str, int]:
        """How much each owner holds."""
        with self.lock:
            return {name: each.used for name, each in self._owners.items() if each.used}

    def held(self, owner: str) -> int:
        """How much an owner holds."""
        holder = self._owners.get(owner)
        return holder.used if holder is not None else 0

    def parts(self, owner: str) -> int:
        """How many parts an owner holds."""
        holder = self._owners.get(owner)
        return len(holder.entries) if holder is not None else 0

    # --- While there is room, with the lock -------------------------------------------------------

    def _adds(self, entry: Entry, *, has_waited: bool = False) -> bool:
        """Takes the part if there is room for it at every level; False if there is not.

        While others wait, there is none for an owner who has more than half.
        """
        if self.waiting and not has_waited and is_greedy(entry):
            return False
        if self._quota is not None and self._quota.tenants.by_name is not self._tables:
            self._read(self._quota)
        amount = entry.amount
        node: Holder | None = entry.holder
        while node is not None:
            used = node.used + amount
            if used > node.limit:
                break
            node.used = used
            node = node.parent
        if node is None:
            entry.holder.entries[entry] = None
            return True
        taken: Holder | None = entry.holder
        while taken is not None and taken is not node:  # those below have counted it
            taken.used -= amount
            taken = taken.parent
        return False

    def _new(self, owner: str, tenant: str) -> Holder:
        """Remembers an owner. Forgets those who hold nothing where there are many."""
        if len(self._owners) >= self._many and not self.waiting:
            self._owners = {
                name: each for name, each in self._owners.items() if each.entries or each.used
            }
            self._many = max(_MANY_OWNERS, 2 * len(self._owners))
        parent = (
            self.strangers if not tenant and not self._is_known(owner) else self._parent(tenant)
        )
        made = Holder(owner, self, parent, NO_LIMIT, None)
        return self._owners.setdefault(owner, made)

    def _parent(self, tenant: str) -> Holder:
        """The tenant; all for those who have none."""
        if not tenant:
            return self.all
        found = self._tenants.get(tenant)
        if found is None:
            limit, refusal = NO_LIMIT, None
            if self._quota is not None:
                limit, refusal = self._quota.limit_of(tenant), self._quota.refusal
            found = self._tenants[tenant] = Holder(tenant, self, self.all, limit, refusal)
        return found

    def _read(self, quota: Quota) -> None:
        self._tables = quota.tenants.by_name
        for name, tenant in self._tenants.items():
            tenant.limit = quota.limit_of(name)

    # --- While there is none ----------------------------------------------------------------------

    def _ask(self, entry: Entry) -> list[Entry]:
        """Has it wait for others; answers which. Raises the refusal if not enough can be ended."""
        self.before_asking()
        if self._have_met() and self._adds(entry):
            return []
        full = self._full(entry) or self.all
        found = who_gives_way(entry, full, self._owners.values(), self.waiting)
        if found is None:
            raise self._refused(full, entry)
        self.waiting[entry] = threading.Event()
        return found

    def _have_met(self) -> bool:
        """Whether some are no strangers any more."""
        strangers = self.strangers
        met = [
            each
            for each in (self._owners.values() if strangers.used else ())
            if each.parent is strangers and self._is_known(each.name)
        ]
        for each in met:
            each.parent = self.all
            strangers.used -= each.used
        return bool(met)

    def _wait(self, entry: Entry, ending: list[Entry]) -> Entry:
        granted = self.waiting.get(entry)
        staying = [each for each in ending if each.yields is not None and each.yields() is False]
        for each in staying:
            each.leaving = False
        about_to_wait()
        seconds = 0.0 if staying and len(staying) == len(ending) else _GIVE_WAY_SECONDS
        if granted is None or granted.wait(seconds):
            return entry
        with self.lock:
            if self.waiting.pop(entry, None) is None:
                return entry
            raise self._refused(self._full(entry) or self.all, entry)

    def grant(self) -> None:
        """Gives free parts to those who wait, first to those who hold least. With the lock."""
        while self.waiting:
            able = [each for each in self.waiting if self._full(each) in (None, self.all)]
            least = min(able, key=_held_by, default=None)
            if least is None or not self._adds(least, has_waited=True):
                return
            self.waiting.pop(least).set()

    @staticmethod
    def _full(entry: Entry) -> Holder | None:
        """The first of its holders, from below, that has no room for it."""
        node: Holder | None = entry.holder
        while node is not None and node.used + entry.amount <= node.limit:
            node = node.parent
        return node

    @staticmethod
    def _refused(full: Holder, asking: Entry) -> NpucallError:
        assert full.refusal is not None  # noqa: S101  # it has a limit
        return full.refusal(full, asking.amount)


def _held_by(entry: Entry) -> list[int]:
    """How much the tenant of a part holds, its owner ..."""
    return [node.used for node in path_of(entry.holder)]
