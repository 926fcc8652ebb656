"""The table of a directory. It knows the members from what the servers said.

It has no clock and no lock: the caller gives the time, in seconds of a clock that never goes back,
and uses the table from one thread at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from npucall.errors import QueueFullError
from npucall.limits import MAX_MEMBERS, MAX_MEMBERS_OF_CALLER
from npucall.membership import COMPLETE_SECONDS, REMOVED_SECONDS, SUSPECT_SECONDS
from npucall_server import retries


class ReportedState(Enum):
    """The state that a beat gives its server."""

    SERVING = "serving"
    DRAINING = "draining"
    GONE = "gone"


class CallerEnds(NamedTuple):
    """Processes that ended while a call of a caller had the device."""

    tenant: str
    name: str
    processes: float


class Beat(NamedTuple):
    """What a server says about itself."""

    address: str
    instance: str
    """The process. It changes with each restart."""
    sequence: int
    state: ReportedState
    body: bytes
    """The rest of the beat. The table only compares it."""
    ended: tuple[CallerEnds, ...] = ()
    """What callers' calls ended of this server."""


class Shown(NamedTuple):
    """A member as watching clients see it."""

    beat: Beat
    suspect: bool
    version: int
    """The version of the table at its last change."""


class TableChanges(NamedTuple):
    """What has changed in the table since an earlier version."""

    version: int
    members: list[Shown]
    gone: list[str]


@dataclass(slots=True)
class _Heard:
    """What the directory hears from an address."""

    beat: Beat
    caller: str
    at: float
    suspect: bool = False


class MemberTable:
    """The members. The table also decides when a member that fell silent is suspect, or gone."""

    def __init__(
        self, now: float, most: int = MAX_MEMBERS, most_of_caller: int = MAX_MEMBERS_OF_CALLER
    ) -> None:
        self.version = 0
        self.is_urgent = False
        """Whether more than loads has changed since this was last set to False."""
        self._started = now
        self._most, self._most_of_caller = most, most_of_caller
        self._heard: dict[str, _Heard] = {}
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
        heard = self._heard.get(beat.address)
        if (beat.address, beat.instance) in self._ended or _is_late(beat, heard):
            return
        if beat.state is ReportedState.GONE:
            self._end(beat, heard, now)
            return
        if heard is None or heard.caller != caller:
            self._check_room(beat.address, caller)
        self._count(caller, 1)
        if heard is not None:
            self._count(heard.caller, -1)
        self._heard[beat.address] = _Heard(beat, caller, now)
        self._show(self._heard[beat.address])

    def look(self, now: float) -> None:
        """Finds members that have been silent for too long. Has to be called every second."""
        for heard in list(self._heard.values()):
            silent = now - heard.at
            if silent >= REMOVED_SECONDS:
                self._forget(heard)
            elif silent >= SUSPECT_SECONDS and not heard.suspect:
                heard.suspect = True
                self._show(heard)
        self._ended = {who: at for who, at in self._ended.items() if now - at < REMOVED_SECONDS}

    # --- What is shown --------------------------------------------------------------------------

    def is_complete(self, now: float) -> bool:
        """Whether every living server has had time to announce itself."""
        return now - self._started >= COMPLETE_SECONDS

    def since(self, version: int) -> TableChanges | None:
        """The changes since that version; since 0: the whole table.

        None if the table has forgotten them: then the client has to begin again, from 0.
        """
        if 0 < version < self._forgotten:
            return None
        members = [each for each in self._shown.values() if each.version > version]
        gone = [name for name, at in self._gone.items() if at > version] if version else []
        return TableChanges(self.version, members, gone)

    def knows(self, address: str) -> bool:
        """Whether a member has reported from there lately."""
        return address in self._heard

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
        self._forget(heard)

    def _forget(self, heard: _Heard) -> None:
        address = heard.beat.address
        del self._heard[address], self._shown[address]
        self._count(heard.caller, -1)
        self.version += 1
        self.is_urgent = True
        self._gone[address] = self.version
        if len(self._gone) > self._most:
            self._forgotten = self._gone.pop(next(iter(self._gone)))

    def _show(self, heard: _Heard) -> None:
        """Decides what watching clients are told about an address."""
        beat, suspect = heard.beat, heard.suspect
        before = self._shown.get(beat.address)
        if before is not None and before.suspect == suspect and _say_the_same(before.beat, beat):
            return
        if before is None or before.suspect != suspect or _is_urgent(before.beat, beat):
            self.is_urgent = True
        self.version += 1
        self._gone.pop(beat.address, None)
        self._shown[beat.address] = Shown(beat, suspect, self.version)

    def _count(self, caller: str, change: int) -> None:
        count = self._of_callers.get(caller, 0) + change
        self._of_callers[caller] = count
        if not count:
            del self._of_callers[caller]

    def _check_room(self, address: str, caller: str) -> None:
        if address not in self._heard and len(self._heard) >= self._most:
            raise _full("members", self._most)
        if self._of_callers.get(caller, 0) >= self._most_of_caller:
            raise _full(f"members that {caller} announces", self._most_of_caller)


def _is_late(beat: Beat, heard: _Heard | None) -> bool:
    """Whether a later beat has already come from the same instance."""
    if heard is None or heard.beat.instance != beat.instance:
        return False
    return beat.sequence <= heard.beat.sequence


def _say_the_same(one: Beat, other: Beat) -> bool:
    return (one.instance, one.state, one.body) == (other.instance, other.state, other.body)


def _is_urgent(before: Beat, now: Beat) -> bool:
    return (before.instance, before.state) != (now.instance, now.state)


def _full(what: str, most: int) -> QueueFullError:
    sentence = f"the directory has {most} {what}, as many as it takes"
    return retries.refusal(QueueFullError, sentence, retries.DIRECTORY_TABLE, limit=most)
