"""A ledger of something that callers share: how much of it each holds. Bytes, places, streams ...

No owner keeps more than half while others ask: what can be ended of it is ended for them.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall.errors import NpucallError

_GIVE_WAY_SECONDS = 1.0
"""How long a caller waits until others have given back what they were told to."""
_WANTED_SECONDS = 2.0
"""A refused caller that has not asked again after this time no longer counts as asking."""
_IDLE_SECONDS = 1.0
"""What has not been used for this long may be ended for others."""


class Holder(Protocol):
    """The one that takes a part."""

    @property
    def peer(self) -> str:
        """Its connection, as gRPC names it; empty if it has none."""

    @property
    def owner(self) -> str:
        """The owner that the part counts for."""


class Entry:
    """What one call, stream, message or region holds. The one that took it gives it back."""

    __slots__ = (
        "_ledger",
        "amount",
        "granted",
        "idle_since",
        "leaving",
        "owner",
        "peer",
        "yields",
    )

    def __init__(
        self, ledger: Ledger, holder: Holder, amount: int, yields: Callable[[], object] | None
    ) -> None:
        self._ledger = ledger
        self.owner, self.peer = holder.owner, holder.peer
        self.amount = amount
        self.yields = yields
        """Ends the holder for others who ask; None while it cannot be ended."""
        self.idle_since: float | None = None
        """Since when it has not been used. After a while it may be ended for anybody who asks."""
        self.leaving = False
        """Whether it has been told to end."""
        self.granted: threading.Event | None = None

    def must_stay(self) -> None:
        """From now on others cannot end it, even if it was told to end: that came too late."""
        self.yields, self.leaving = None, False

    def give_back(self) -> None:
        """Gives all of it back. A second time does nothing."""
        self._ledger.give_back(self)


class Ledger:
    """An amount of something that callers take parts of. Each part has an owner, by name.

    ``refusal`` makes the error if there is no room. If others can be told to give way, the asking
    caller first waits for that, at most a second.
    """

    def __init__(self, limit: int, refusal: Callable[[], NpucallError]) -> None:
        self.limit = limit
        self.used = 0
        self._refusal = refusal
        self._refused_at = -math.inf
        self._lock = threading.RLock()  # the garbage collector gives regions back in any thread
        self._owners: dict[str, dict[Entry, None]] = {}
        self._waiting: list[Entry] = []

    def take(
        self, holder: Holder, amount: int, yields: Callable[[], object] | None = None
    ) -> Entry:
        """Takes a part, at once if there is room. Raises the refusal if there is none in time."""
        entry = Entry(self, holder, amount, yields)
        with self._lock:
            fits = self.used + amount <= self.limit
            if fits and (not self._waiting or not self._is_greedy(entry)):
                self._add(entry)
                return entry
            ending = self._who_gives_way(entry)
            entry.granted = threading.Event()
            self._waiting.append(entry)
        for end in ending:
            end()
        self._wait(entry, entry.granted)
        return entry

    def give_back(self, entry: Entry) -> None:
        """Gives a part back, to those who wait. A second time does nothing."""
        with self._lock:
            if not self._drop(entry):
                return
            self.used -= entry.amount
            if self._waiting:
                self._grant()

    def take_spare(self, holder: Holder, amount: int, yields: Callable[[], object]) -> Entry | None:
        """Takes a part if nobody else asks for it; else None. ``yields`` ends it for anybody."""
        entry = Entry(self, holder, amount, yields)
        entry.idle_since = -math.inf
        with self._lock:
            if self._waiting or self.used + amount > self.limit:
                return None
            self._add(entry)
            return entry

    def grow(self, entry: Entry, amount: int) -> None:
        """Adds so much to an entry, as ``take`` does."""
        with self._lock:
            if not self._waiting and self.used + amount <= self.limit:
                self.used += amount
                self._enlarge(entry, amount)
                return
        more = self.take(entry, amount)
        with self._lock:
            self._drop(more)
            more.amount = 0
            self._enlarge(entry, amount)

    def shrink(self, entry: Entry, amount: int) -> None:
        """Gives a part of an entry back. An empty entry may still grow."""
        with self._lock:
            entry.amount -= amount
            self.used -= amount
            if not entry.amount:
                self._drop(entry)
            if self._waiting:
                self._grant()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a part, or was refused a moment ago."""
        return bool(self._waiting) or time.monotonic() - self._refused_at < _WANTED_SECONDS

    @property
    def peers(self) -> set[str]:
        """Connections that hold a part, or wait for one."""
        with self._lock:
            holding = [entry for entries in self._owners.values() for entry in entries]
            return {entry.peer for entry in (*holding, *self._waiting)}

    @property
    def owners(self) -> dict[str, int]:
        """How much each owner holds."""
        with self._lock:
            return {owner: self.held(owner) for owner in self._owners}

    def held(self, owner: str) -> int:
        """How much an owner holds."""
        return sum(entry.amount for entry in tuple(self._owners.get(owner, ())))

    def _add(self, entry: Entry) -> None:
        self.used += entry.amount
        entries = self._owners.get(entry.owner)
        if entries is None:
            self._owners[entry.owner] = {entry: None}
        else:
            entries[entry] = None

    def _enlarge(self, entry: Entry, amount: int) -> None:
        entry.amount += amount
        self._owners.setdefault(entry.owner, {})[entry] = None

    def _drop(self, entry: Entry) -> bool:
        """Removes an entry. Answers whether it was held."""
        entries = self._owners.get(entry.owner)
        if entries is None or entry not in entries:
            return False
        del entries[entry]
        if not entries:
            del self._owners[entry.owner]
        return True

    def _grant(self) -> None:
        """Gives free parts to those who wait, first to the owner who holds least."""
        while self._waiting:
            entry = min(self._waiting, key=lambda each: self.held(each.owner))
            if self.used + entry.amount > self.limit:
                return
            self._waiting.remove(entry)
            self._add(entry)
            entry.granted.set()  # type: ignore[union-attr]  # it waits

    def _wait(self, entry: Entry, granted: threading.Event) -> None:
        if granted.wait(_GIVE_WAY_SECONDS):
            return
        with self._lock:
            if entry in self._waiting:
                self._waiting.remove(entry)
                raise self._refused()

    def _who_gives_way(self, asking: Entry) -> list[Callable[[], object]]:
        """Functions that end enough entries. Raises the refusal if not enough can be ended."""
        everybody = [entry for entries in tuple(self._owners.values()) for entry in tuple(entries)]
        leaving = sum(entry.amount for entry in everybody if entry.leaving)
        wanted = asking.amount + sum(entry.amount for entry in self._waiting)
        missing = self.used + wanted - leaving - self.limit
        ending = []
        for entry in (*filter(_is_idle, everybody), *self._of_who_has_most(asking)):
            if missing > 0 and entry.yields is not None and not entry.leaving:
                ending.append(entry)
                missing -= entry.amount
        if missing > 0:
            raise self._refused()
        for entry in ending:
            entry.leaving = True
        return [entry.yields for entry in ending if entry.yields is not None]

    def _of_who_has_most(self, asking: Entry) -> list[Entry]:
        """The parts of owners with more than half, the newest first.

        None of them if the asking owner would have more than half too.
        """
        if self._is_greedy(asking):
            return []
        half = self.limit // 2
        greedy = [owner for owner in self._owners if self.held(owner) > half]
        return [entry for owner in greedy for entry in reversed(self._owners[owner])]

    def _is_greedy(self, asking: Entry) -> bool:
        """Whether the asking owner would have more than half."""
        return self.held(asking.owner) + asking.amount > self.limit // 2

    def _refused(self) -> NpucallError:
        self._refused_at = time.monotonic()
        return self._refusal()


def _is_idle(entry: Entry) -> bool:
    since = entry.idle_since
    return since is not None and time.monotonic() - since >= _IDLE_SECONDS
