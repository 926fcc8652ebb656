"""Sends the table to the clients that watch it. One message has all changes until then.

A thread looks every second, and at once if more than loads has changed. It serialises the changes
once for all clients that are at the same version. For a slow client the feed keeps only the message
on its way and the version after it: the next message has all changes since then.
"""

from __future__ import annotations

import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from npucall.membership import QUIET_SECONDS
from npucall_server.directory import messages
from npucall_server.directory.table import Beat, MemberTable
from npucall_server.telemetry.log import Log

T = TypeVar("T")


_LOOK_SECONDS = 1.0
"""Time between two messages that say how busy members are."""
_GAP_SECONDS = 0.1
"""The shortest time between two messages of any kind."""
_SPOKEN_SECONDS = QUIET_SECONDS / 2
"""After this time without a change, watching clients are told that nothing has changed."""
_KEPT_PARTS = 8
"""How many parts of messages are kept. The parts for slow clients are not kept."""


class _State(NamedTuple):
    """What clients are told now."""

    version: int
    complete: bool


class Feed:
    """The table with a lock, and the clients that watch it. Safe to use from several threads."""

    def __init__(
        self, table: MemberTable, log: Log, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._table, self._log, self._clock = table, log, clock
        self.epoch = secrets.randbits(64)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._look_now = threading.Event()
        self._parts: dict[int, bytes] = {}
        self._now = _State(0, complete=False)
        self.beats = 0
        """How many beats have been heard."""
        self._watching = 0
        self._stopped = False
        threading.Thread(target=self._serve, name="npucall-feed", daemon=True).start()

    def change(self, change: Callable[[MemberTable, float], None]) -> None:
        """Calls ``change`` to change the table, and tells watching clients."""
        with self._lock:
            change(self._table, self._clock())
            urgent, self._table.is_urgent = self._table.is_urgent, False
        if urgent:
            self._look_now.set()

    def ask(self, question: Callable[[MemberTable], T]) -> T:
        """Asks the table something. The table does not change meanwhile."""
        with self._lock:
            return question(self._table)

    def beat(self, beat: Beat, caller: str) -> None:
        """Takes a beat of a server. Raises QueueFullError."""

        def heard(table: MemberTable, now: float) -> None:
            self.beats += 1
            table.beat(beat, caller, now)

        self.change(heard)

    def messages(self, is_wanted: Callable[[], bool]) -> Iterator[bytes]:
        """The messages for one client: the table, then its changes, while ``is_wanted``."""
        told, count = _State(0, complete=False), 0
        while is_wanted():
            with self._changed:
                now, part = self._now, self._part_since(told.version)
            if part is None or self._stopped:
                return  # too many members have gone: the client has to begin again
            count += 1
            yield messages.head(self.epoch, count, complete=now.complete) + part
            told = now
            self._wait_for_another(told, is_wanted)

    def wake(self) -> None:
        """Makes every stream check whether its client still wants it."""
        with self._changed:
            self._changed.notify_all()

    def knows(self, address: str) -> bool:
        """Whether a member has reported from there lately."""
        return self.ask(lambda table: table.knows(address))

    def counts(self) -> dict[str, int]:
        """How many members are in each state."""
        return self.ask(lambda table: table.counts())

    def stop(self) -> None:
        """Ends the streams of all watching clients."""
        self._stopped = True
        self._look_now.set()
        self.wake()

    def _wait_for_another(self, told: _State, is_wanted: Callable[[], bool]) -> None:
        with self._changed:
            self._watching += 1
            self._changed.wait_for(
                lambda: self._now != told or self._stopped or not is_wanted(), _SPOKEN_SECONDS
            )
            self._watching -= 1

    def _part_since(self, version: int) -> bytes | None:
        """The changes since a version, perhaps with some that are not announced yet.

        Needs the lock.
        """
        part = self._parts.get(version)
        if part is None:
            changes = self._table.since(version)
            if changes is None:
                return None
            part = messages.members(changes)
            if len(self._parts) < _KEPT_PARTS:
                self._parts[version] = part
        return part

    def _serve(self) -> None:
        while not self._stopped:
            self._look_now.wait(_LOOK_SECONDS)
            self._look_now.clear()
            try:
                self._look()
            except Exception:  # noqa: BLE001  # clients are told the next time
                self._log.event("bug", traceback=traceback.format_exc())
            time.sleep(_GAP_SECONDS)

    def _look(self) -> None:
        with self._changed:
            now, table = self._clock(), self._table
            table.look(now)
            table.is_urgent = False
            state = _State(table.version, table.is_complete(now))
            if state == self._now:
                return
            before, self._now = self._now, state
            self._parts.clear()
            if self._watching:
                self._part_since(before.version)  # before the table changes again
            self._changed.notify_all()
