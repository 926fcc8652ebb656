"""Whose calls ended the process of this server; it is remembered for the next one.

A call may end its process: a kernel that breaks the device, a bug of CANN. A file in memory that
the system keeps has the names of those who have a turn now. The next process finds them there.
Who has ended two processes makes one call at a time from then on, with a pause that grows; nobody
else is slowed. If several had a turn when a process ended, each is charged a part of it.
"""

from __future__ import annotations

import json
import mmap
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from npucall.environment.watched_file import WatchedFile
from npucall.errors import QueueFullError, QuotaError
from npucall.texts import retry_in
from npucall_server.access.identity import Identity
from npucall_server.telemetry.log import Log

_NAMES_BYTES = 8192
_MANY = 2 - 1e-6
"""After so many processes the calls of a person go one at a time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
"""Seconds between two of these calls; twice as long after each further process."""
_FORGOTTEN_SECONDS = 3600.0
"""After this time without another one, nothing is held against anybody."""


_HEARD_SECONDS = 30.0
"""For which time what a directory said counts."""


class Ended(NamedTuple):
    """What a person has ended."""

    processes: float
    last: float
    """Seconds since 1970."""

    @property
    def pause(self) -> float:
        """Seconds between two calls of that person; 0 if they are not slowed."""
        if self.processes < _MANY:
            return 0.0
        return float(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (int(self.processes + 1e-6) - 2)))


_NOTHING = Ended(0.0, 0.0)


class Endings:
    """Who has a turn, and who has ended processes; ``folder`` outlives a process.

    Callers whom nothing proved are nobody in particular, and never slowed. An administrator lifts
    it by LiftPause, or by removing the file. Safe to use from several threads. Raises OSError.
    """

    def __init__(
        self,
        folder: Path,
        device: str,
        log: Log,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log, self._wall, self._monotonic = log, wall, monotonic
        self._lock = threading.Lock()
        self._turns: Counter[str] = Counter()
        self._under_way: set[str] = set()
        self._earliest: dict[str, float] = {}
        """When the next call of a person may begin, by ``monotonic``."""
        self._ended: dict[str, Ended] = {}
        self._in_pool: Mapping[str, tuple[float, str]] = {}
        self._heard_until = 0.0
        self.undrained = 0
        """Processes before this one that ended without a drain, as far as is remembered."""
        name = device.replace(":", "-")
        self._file = WatchedFile(folder / f"endings-{name}.json")
        self._turns_path = folder / f"turns-{name}"
        self.look()
        if self._turns_path.exists():
            self._learn()
            self._turns_path.unlink()
        self._names: mmap.mmap | None = None

    def start(self) -> None:
        """From now on the process counts, unless it has ``drained``. Raises OSError."""
        self._turns_path.write_bytes(bytes(_NAMES_BYTES))
        with self._turns_path.open("r+b") as file:
            self._names = mmap.mmap(file.fileno(), _NAMES_BYTES)

    def drained(self) -> None:
        """The process ends as it should."""
        self._turns_path.unlink(missing_ok=True)

    # --- Of the process before this one -----------------------------------------------------------

    def _learn(self) -> None:
        """It ended without a drain: who had turns is charged."""
        found = self._turns_path.read_bytes().partition(b"\0")[0].decode("utf-8", "replace")
        people, now = [each for each in found.split("\n") if each], self._wall()
        self.undrained += 1
        for person in people:
            before = self._ended.get(person, Ended(0.0, now))
            self._ended[person] = Ended(before.processes + 1 / len(people), now)
        self._log.event(
            "ended without drain",
            message=f"the process before this one ended without a drain ({self.undrained} in all); "
            f"calls of {', '.join(people) or 'nobody that is known'} had the device",
        )
        self._save()

    def _save(self) -> None:
        told = {"undrained": self.undrained, "people": self._ended}
        draft = self._file.path.with_suffix(".part")
        draft.write_text(json.dumps(told, indent=1))
        draft.replace(self._file.path)

    def lift(self, person: str) -> None:
        """Forgets what a person has ended. Raises OSError."""
        with self._lock:
            if self._ended.pop(person, None) is not None:
                self._under_way.discard(person)
                self._save()

    def look(self) -> None:
        """Reads the file again if somebody has changed it. Needs to be called every second."""
        try:
            content = self._file.changed()
        except FileNotFoundError:
            content = b"{}"
        if content is None:
            return
        try:
            told = json.loads(content)
            people = {each: Ended(*map(float, told["people"][each])) for each in told["people"]}
            undrained = int(told["undrained"])
        except (ValueError, KeyError, TypeError):
            people, undrained = {}, self.undrained
        with self._lock:
            self._ended, self.undrained = people, undrained
            self._under_way &= people.keys()

    # --- Turns ------------------------------------------------------------------------------------

    def begins(self, identity: Identity) -> None:
        """Somebody gets a turn."""
        if identity.tenant:
            with self._lock:
                self._turns[identity.person] += 1
                if self._turns[identity.person] == 1:
                    self._write()

    def is_over(self, identity: Identity) -> None:
        """And gives it back."""
        if identity.tenant:
            with self._lock:
                self._turns[identity.person] -= 1
                if not self._turns[identity.person]:
                    del self._turns[identity.person]
                    self._write()

    def _write(self) -> None:
        if self._names is None:
            return
        names = "\n".join(self._turns).encode()[: _NAMES_BYTES - 1]
        self._names[: len(names) + 1] = names + b"\0"

    # --- Calls of those who have ended processes --------------------------------------------------

    def enter(self, identity: Identity) -> Turnstile | None:
        """Lets a call in; what it answers is given back at its end.

        Raises QuotaError, and QueueFullError if another member of the pool has to take it.
        """
        if not (self._ended or self._in_pool):
            return None
        person = identity.person
        with self._lock:
            ended, member = self._of(person)
            if not ended.pause:
                return None
            if member:
                raise _at_another(person, member, ended.pause)
            wait = self._earliest.get(person, 0.0) - self._monotonic()
            if person in self._under_way or wait > 0:
                raise _one_at_a_time(person, ended, max(wait, _FIRST_PAUSE / 2))
            self._under_way.add(person)
        return Turnstile(self, person, ended.pause)

    def _of(self, person: str) -> tuple[Ended, str]:
        """What a person has ended, here or in the pool, and which member takes the calls."""
        own, processes, member = self._ended.get(person, _NOTHING), 0.0, ""
        if self._is_forgotten(own):
            own = _NOTHING
        if self._monotonic() < self._heard_until:
            processes, member = self._in_pool.get(person, (0.0, ""))
        return own._replace(processes=max(own.processes, processes)), member

    def hear(self, in_pool: Mapping[str, tuple[float, str]]) -> None:
        """Takes what a directory adds up: how many processes each person has ended in the pool.

        And which other member has to take the calls; empty: this one may.
        """
        self._in_pool, self._heard_until = in_pool, self._monotonic() + _HEARD_SECONDS

    def leave(self, person: str, pause: float) -> None:
        """That call is over."""
        with self._lock:
            self._under_way.discard(person)
            self._earliest[person] = self._monotonic() + pause

    def held_against(self) -> Mapping[str, Ended]:
        """What people have ended of late."""
        with self._lock:
            return {who: e for who, e in self._ended.items() if not self._is_forgotten(e)}

    def slowed(self) -> list[str]:
        """Whose calls go one at a time."""
        return [person for person, ended in self.held_against().items() if ended.pause]

    def _is_forgotten(self, ended: Ended) -> bool:
        return self._wall() - ended.last > _FORGOTTEN_SECONDS


class Turnstile:
    """What a call of a person holds whose calls go one at a time."""

    __slots__ = ("_endings", "_pause", "_person")

    def __init__(self, endings: Endings, person: str, pause: float) -> None:
        self._endings: Endings | None = endings
        self._person, self._pause = person, pause

    def give_back(self) -> None:
        """The call is over. A second time does nothing."""
        endings, self._endings = self._endings, None
        if endings is not None:
            endings.leave(self._person, self._pause)


def _at_another(person: str, member: str, wait: float) -> QueueFullError:
    return QueueFullError(
        f"calls of {person} ended processes of this pool, so only {member} takes them, one at a "
        f"time; {retry_in(wait)}, or ask the administrator",
        retry_after=wait,
        setting="state_folder",
    )


def _one_at_a_time(person: str, ended: Ended, wait: float) -> QuotaError:
    return QuotaError(
        f"calls of {person} ended {ended.processes:.3g} processes of this server, so they run one "
        f"at a time, {ended.pause:g} s apart; {retry_in(wait)}, or ask the administrator",
        retry_after=wait,
        quota="endings",
        setting="state_folder",
    )
