"""What callers share and how much each holds of it: bytes, places, streams, messages.

Nobody holds more than half while others ask: what may be ended of it is, for those who ask.
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
"""In which what others have been told to give back is there."""
_WANTED_SECONDS = 2.0
"""After which nobody asks again who was refused."""
_IDLE_SECONDS = 1.0
"""From which on what is not used may be ended for others."""


class Holder(Protocol):
    """Who takes parts."""

    @property
    def peer(self) -> str:
        """Its connection, as gRPC tells it; empty where it has none."""

    @property
    def owner(self) -> str:
        """Whom it counts for."""


class Entry:
    """What one call, stream, message or region holds. Whoever took it gives it back."""

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
        """Ends what holds it, for others who ask; None while that cannot be ended."""
        self.idle_since: float | None = None
        """Since when it has not been used: then it may be ended for anybody who asks."""
        self.leaving = False
        """Whether it has been told to end."""
        self.granted: threading.Event | None = None

    def must_stay(self) -> None:
        """It is not ended for others any more, even if it has been told to: that came too late."""
        self.yields, self.leaving = None, False

    def give_back(self) -> None:
        """Gives all of it back; a second time does nothing."""
        self._ledger.give_back(self)


class Ledger:
    """An amount of something that callers take parts of, each known by its owner's name.

    ``refusal`` makes the error for who asks in vain. Where others can be told to give way, who asks
    waits for that a second at most.
    """

    def __init__(self, limit: int, refusal: Callable[[], NpucallError]) -> None:
        self.limit = limit
        self.used = 0
        self._refusal = refusal
        self._refused_at = -math.inf
        self._lock = threading.RLock()  # the collector may give a region back in any thread
        self._owners: dict[str, dict[Entry, None]] = {}
        self._waiting: list[Entry] = []

    def take(
        self, holder: Holder, amount: int, yields: Callable[[], object] | None = None
    ) -> Entry:
        """Takes a part, at once where there is room. Raises the refusal where none comes."""
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
        """Gives a part back, to those who wait; a second time does nothing."""
        with self._lock:
            if not self._drop(entry):
                return
            self.used -= entry.amount
            if self._waiting:
                self._grant()

    def take_spare(self, holder: Holder, amount: int, yields: Callable[[], object]) -> Entry | None:
        """Takes a part that nobody asks for, if there is one; ``yields`` ends it for anybody."""
        entry = Entry(self, holder, amount, yields)
        entry.idle_since = -math.inf
        with self._lock:
            if self._waiting or self.used + amount > self.limit:
                return None
            self._add(entry)
            return entry

    def grow(self, entry: Entry, amount: int) -> None:
        """Takes so much more into an entry, as ``take`` does."""
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
        """Gives a part of an entry back. One of nothing may still grow."""
        with self._lock:
            entry.amount -= amount
            self.used -= amount
            if not entry.amount:
                self._drop(entry)
            if self._waiting:
                self._grant()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a part, or asked in vain a moment ago."""
        return bool(self._waiting) or time.monotonic() - self._refused_at < _WANTED_SECONDS

    @property
    def peers(self) -> set[str]:
        """Connections that hold a part, or wait for one."""
        with self._lock:
            holding = [entry for entries in self._owners.values() for entry in entries]
            return {entry.peer for entry in (*holding, *self._waiting)}

    @property
    def owners(self) -> dict[str, int]:
        """What each who holds something holds."""
        with self._lock:
            return {owner: self.held(owner) for owner in self._owners}

    def held(self, owner: str) -> int:
        """What an owner holds."""
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
        """Whether it was among what is held."""
        entries = self._owners.get(entry.owner)
        if entries is None or entry not in entries:
            return False
        del entries[entry]
        if not entries:
            del self._owners[entry.owner]
        return True

    def _grant(self) -> None:
        """Gives to those who wait what there is, first to who holds least."""
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
        """What ends so much that it suffices; raises the refusal where nothing can."""
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
        """The parts of an owner who has more than half, the newest first.

        None where whoever asks is that owner, or would have more than half too.
        """
        if self._is_greedy(asking):
            return []
        half = self.limit // 2
        greedy = [owner for owner in self._owners if self.held(owner) > half]
        return [entry for owner in greedy for entry in reversed(self._owners[owner])]

    def _is_greedy(self, asking: Entry) -> bool:
        """Whether its owner would have more than half."""
        return self.held(asking.owner) + asking.amount > self.limit // 2

    def _refused(self) -> NpucallError:
        self._refused_at = time.monotonic()
        return self._refusal()


def _is_idle(entry: Entry) -> bool:
    since = entry.idle_since
    return since is not None and time.monotonic() - since >= _IDLE_SECONDS
