"""The table of a directory. It knows the members from what servers and other directories said.

It has no clock and no lock: the caller gives the time, in seconds of a clock that never goes back,
and uses the table from one thread at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from npucall.errors import QueueFullError
from npucall.limits import MAX_MEMBERS, MAX_MEMBERS_OF_CALLER
from npucall.membership import COMPLETE_SECONDS, REMOVED_SECONDS, SUSPECT_SECONDS
from npucall.texts import retry_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_RETRY_SECONDS = 30.0


class State(Enum):
    """The state that a beat gives its server."""

    SERVING = "serving"
    DRAINING = "draining"
    GONE = "gone"


class Beat(NamedTuple):
    """What a server says about itself."""

    address: str
    instance: str
    """The process. It changes with each restart."""
    sequence: int
    state: State
    body: bytes
    """The rest of the beat. The table only compares it."""


class Shown(NamedTuple):
    """A member as watching clients see it."""

    beat: Beat
    suspect: bool
    version: int
    """The version of the table at its last change."""


class Changes(NamedTuple):
    """What has changed in the table since an earlier version."""

    version: int
    members: list[Shown]
    gone: list[str]


@dataclass(slots=True)
class _Heard:
    """What this directory itself hears from an address."""

    beat: Beat
    caller: str
    at: float
    suspect: bool = False


@dataclass(slots=True)
class _Address:
    """All that is known about an address."""

    heard: _Heard | None = None
    told: dict[str, tuple[Beat, bool, int]] = field(default_factory=dict)
    """What other directories say, by their names: the beat, whether the member is suspect, and the
    order in which they said it."""


class Table:
    """The members. The table also decides when a member that fell silent is suspect, or gone."""

    def __init__(
        self, now: float, most: int = MAX_MEMBERS, most_of_caller: int = MAX_MEMBERS_OF_CALLER
    ) -> None:
        self.version = 0
        self.is_urgent = False
        """Whether more than loads has changed since this was last set to False."""
        self.knows_others = True
        """Whether the other directories, if there are any, have told all that they know."""
        self._started = now
        self._most, self._most_of_caller = most, most_of_caller
        self._known: dict[str, _Address] = {}
        self._of_callers: dict[str, int] = {}
        self._ended: dict[tuple[str, str], float] = {}
        """Instances that have gone, and when they said so.

        Their earlier beats may still come late.
        """
        self._shown: dict[str, Shown] = {}
        self._gone: dict[str, int] = {}
        """Addresses that have gone, and the version in which they went."""
        self._forgotten = 0
        """The highest version for which the table has forgotten which addresses went."""

    # --- What is said ---------------------------------------------------------------------------

    def beat(self, beat: Beat, caller: str, now: float) -> None:
        """Takes a server's own beat. Raises QueueFullError if the table is full."""
        known = self._known.get(beat.address)
        heard = known.heard if known is not None else None
        if (beat.address, beat.instance) in self._ended or _is_late(beat, heard):
            return
        if beat.state is State.GONE:
            self._end(beat, heard, now)
            return
        if heard is None or heard.caller != caller:
            self._check_room(beat.address, caller)
        if known is None:
            known = self._known[beat.address] = _Address()
        self._count(caller, 1)
        if heard is not None:
            self._count(heard.caller, -1)
        known.heard = _Heard(beat, caller, now)
        self._settle(beat.address)

    def tell(self, directory: str, beat: Beat, order: int, *, suspect: bool) -> None:
        """Takes a beat that another directory tells. Of several, the last in order counts.

        It counts until that directory tells something else. So the caller has to know that the
        directory is alive.
        """
        known = self._known.setdefault(beat.address, _Address())
        known.told[directory] = (beat, suspect, order)
        self._settle(beat.address)

    def tell_all(self, told: Collection[tuple[str, Beat, int, bool]]) -> None:
        """Takes all that other directories say: directory, beat, order, whether it is suspect.

        What they said before and do not say now no longer counts.
        """
        self.knows_others = True
        now = {(name, beat.address) for name, beat, _, _ in told}
        before = {(name, address) for address, known in self._known.items() for name in known.told}
        for name, beat, order, suspect in told:
            self.tell(name, beat, order, suspect=suspect)
        for name, address in before - now:
            self.untell(name, address)

    def untell(self, directory: str, address: str) -> None:
        """Another directory no longer knows this member."""
        known = self._known.get(address)
        if known is not None and known.told.pop(directory, None) is not None:
            self._settle(address)

    def told_of_ended(self) -> list[tuple[str, str]]:
        """Directories that still tell an instance that has gone, with its address."""
        return [
            (name, address)
            for address, instance in self._ended
            if address in self._known
            for name, (beat, _, _) in self._known[address].told.items()
            if beat.instance == instance
        ]

    def look(self, now: float) -> None:
        """Finds members that have been silent for too long. Has to be called every second."""
        for address, known in list(self._known.items()):
            heard = known.heard
            if heard is None:
                continue
            silent = now - heard.at
            if silent >= REMOVED_SECONDS:
                self._forget(known, heard)
            elif silent >= SUSPECT_SECONDS and not heard.suspect:
                heard.suspect = True
            else:
                continue
            self._settle(address)
        self._ended = {who: at for who, at in self._ended.items() if now - at < REMOVED_SECONDS}

    # --- What is shown --------------------------------------------------------------------------

    def is_complete(self, now: float) -> bool:
        """Whether every living server has had time to announce itself."""
        return self.knows_others and now - self._started >= COMPLETE_SECONDS

    def since(self, version: int) -> Changes | None:
        """The changes since that version; since 0: the whole table.

        None if the table has forgotten them: then the client has to begin again, from 0.
        """
        if 0 < version < self._forgotten:
            return None
        members = [each for each in self._shown.values() if each.version > version]
        gone = [name for name, at in self._gone.items() if at > version] if version else []
        return Changes(self.version, members, gone)

    def heard(self) -> Mapping[str, tuple[Beat, bool]]:
        """What this directory hears itself, by address: the last beat; whether it is suspect."""
        heard = ((address, known.heard) for address, known in self._known.items())
        return {address: (each.beat, each.suspect) for address, each in heard if each is not None}

    def counts(self) -> dict[str, int]:
        """How many members are serving, draining or suspect."""
        counts = {"serving": 0, "draining": 0, "suspect": 0}
        for each in list(self._shown.values()):
            counts["suspect" if each.suspect else each.beat.state.value] += 1
        return counts

    # --- Within ---------------------------------------------------------------------------------

    def _end(self, beat: Beat, heard: _Heard | None, now: float) -> None:
        """Removes an instance. Another instance at the same address stays."""
        if heard is None or heard.beat.instance != beat.instance:
            return
        self._ended[beat.address, beat.instance] = now
        if len(self._ended) > self._most:
            del self._ended[next(iter(self._ended))]
        self._forget(self._known[beat.address], heard)
        self._settle(beat.address)

    def _forget(self, known: _Address, heard: _Heard) -> None:
        known.heard = None
        self._count(heard.caller, -1)

    def _settle(self, address: str) -> None:
        """Decides what watching clients are told about an address."""
        known, before = self._known[address], self._shown.get(address)
        now = _best(known)
        if now is None:
            del self._known[address]
            if before is not None:
                self._show_gone(address)
            return
        beat, suspect = now
        if before is not None and before.suspect == suspect and _say_the_same(before.beat, beat):
            return
        if before is None or before.suspect != suspect or _is_urgent(before.beat, beat):
            self.is_urgent = True
        self.version += 1
        self._gone.pop(address, None)
        self._shown[address] = Shown(beat, suspect, self.version)

    def _show_gone(self, address: str) -> None:
        self.version += 1
        self.is_urgent = True
        del self._shown[address]
        self._gone[address] = self.version
        if len(self._gone) > self._most:
            self._forgotten = self._gone.pop(next(iter(self._gone)))

    def _count(self, caller: str, change: int) -> None:
        count = self._of_callers.get(caller, 0) + change
        self._of_callers[caller] = count
        if not count:
            del self._of_callers[caller]

    def _check_room(self, address: str, caller: str) -> None:
        if address not in self._known and len(self._known) >= self._most:
            raise _full("members", self._most)
        if self._of_callers.get(caller, 0) >= self._most_of_caller:
            raise _full(f"members that {caller} announces", self._most_of_caller)


def _is_late(beat: Beat, heard: _Heard | None) -> bool:
    """Whether a later beat has already come from the same instance."""
    if heard is None or heard.beat.instance != beat.instance:
        return False
    return beat.sequence <= heard.beat.sequence


def _best(known: _Address) -> tuple[Beat, bool] | None:
    """What is shown of an address: what was heard here; if it is silent, what others heard."""
    heard = known.heard
    if heard is not None and not heard.suspect:
        return heard.beat, False
    told = [(not suspect, order, beat) for beat, suspect, order in known.told.values()]
    best = max(told, key=lambda each: each[:2], default=None)
    if heard is not None and (best is None or not best[0]):
        return heard.beat, True
    return None if best is None else (best[2], not best[0])


def _say_the_same(one: Beat, other: Beat) -> bool:
    return (one.instance, one.state, one.body) == (other.instance, other.state, other.body)


def _is_urgent(before: Beat, now: Beat) -> bool:
    return (before.instance, before.state) != (now.instance, now.state)


def _full(what: str, most: int) -> QueueFullError:
    return QueueFullError(
        f"the directory has {most} {what}, as many as it takes; {retry_in(_RETRY_SECONDS)}",
        retry_after=_RETRY_SECONDS,
        limit=str(most),
    )
