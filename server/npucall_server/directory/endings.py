"""Whose calls ended processes of a pool's members, from what the members said."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from npucall.limits import MAX_MEMBERS
from npucall_server.directory.table import CallerEnds

_KEPT_SECONDS = 3600.0
_MANY = 2 - 1e-6
"""Processes from which on the calls of a caller go to one member."""


class PoolEndings:
    """Adds up what members say. Safe to use from several threads.

    A member that has ended says nothing until it is back; what it said before counts till then, at
    most an hour.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lock, self._clock = threading.Lock(), clock
        self._said: dict[str, tuple[tuple[CallerEnds, ...], float]] = {}

    def hear(self, address: str, ended: tuple[CallerEnds, ...]) -> None:
        """A member says what callers have ended there."""
        with self._lock:
            self._said.pop(address, None)
            if ended:
                self._said[address] = ended, self._clock()
            if len(self._said) > MAX_MEMBERS:
                del self._said[next(iter(self._said))]

    def in_all(self, knows: Callable[[str], bool]) -> Mapping[CallerEnds, str]:
        """Who has ended many, in all, and the member that takes that caller's calls.

        That is the living member of which they ended most. ``knows``: whether one lives.
        """
        with self._lock:
            if not self._said:
                return {}
            since = self._clock() - _KEPT_SECONDS
            said = {where: ended for where, (ended, at) in self._said.items() if at > since}
        places: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for address in sorted(said):
            for tenant, name, processes in said[address]:
                places[tenant, name][address] = processes
        found = {}
        for who, by_address in places.items():
            total = sum(by_address.values())
            if total >= _MANY:
                living = filter(knows, by_address)
                found[CallerEnds(*who, total)] = max(living, key=by_address.__getitem__, default="")
        return found
