"""Hands the table to those who watch: as many changes in one message as there are by then.

A thread looks every second, and at once where more than loads has changed. What it finds is made
into bytes once for all who were told as much as each other. Who reads slowly has a message on its
way and the number of the version behind it, nothing else: the next message has all changes since.
"""

from __future__ import annotations

import secrets
import threading
import time
import traceback
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from npucall.membership import QUIET_SECONDS
from npucall_server.directory import messages

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_server.directory.table import Beat, Table
    from npucall_server.log import Log

_LOOK_SECONDS = 1.0
"""Between two messages that say how busy members are."""
_GAP_SECONDS = 0.1
"""At least, between two messages of whatever kind."""
_SPOKEN_SECONDS = QUIET_SECONDS / 2
"""After which who watches is told that nothing has changed."""
_KEPT_PARTS = 8
"""Of messages; those who read slowly have parts of their own, which are not kept."""


class _State(NamedTuple):
    """What is told now."""

    version: int
    complete: bool


class Feed:
    """The table, locked, and those who watch it. Safe to use from several threads."""

    def __init__(self, table: Table, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._table, self._log, self._clock = table, log, clock
        self.epoch = secrets.randbits(64)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._look_now = threading.Event()
        self._parts: dict[int, bytes] = {}
        self._now = _State(0, complete=False)
        self.listeners: list[Callable[[], object]] = []
        """Called where more than loads has changed."""
        self.beats = 0
        """Heard so far."""
        self._watching = 0
        self._stopped = False
        threading.Thread(target=self._serve, name="npucall-feed", daemon=True).start()

    def change(self, change: Callable[[Table, float], None]) -> None:
        """Has the table changed; tells those who watch."""
        with self._lock:
            change(self._table, self._clock())
            urgent, self._table.is_urgent = self._table.is_urgent, False
        if urgent:
            self._look_now.set()
            for listener in self.listeners:
                listener()

    def ask(self, question: Callable[[Table], T]) -> T:
        """What the table says; nobody changes it meanwhile."""
        with self._lock:
            return question(self._table)

    def beat(self, beat: Beat, caller: str) -> None:
        """A server says this of itself. Raises QueueFullError."""

        def heard(table: Table, now: float) -> None:
            self.beats += 1
            table.beat(beat, caller, now)

        self.change(heard)

    def messages(self, is_wanted: Callable[[], bool]) -> Iterator[bytes]:
        """What who watches is told: the table, then what changes, as long as it is wanted."""
        told, count = _State(0, complete=False), 0
        while is_wanted():
            with self._changed:
                now, part = self._now, self._part_since(told.version)
            if part is None or self._stopped:
                return  # so much has gone that it has to begin anew
            count += 1
            yield messages.head(self.epoch, count, complete=now.complete) + part
            told = now
            self._wait_for_another(told, is_wanted)

    def wake(self) -> None:
        """Has those who watch look whether they are still wanted."""
        with self._changed:
            self._changed.notify_all()

    def counts(self) -> dict[str, int]:
        """How many members there are in which state."""
        return self.ask(lambda table: table.counts())

    def stop(self) -> None:
        """Ends the streams of all who watch."""
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
        """What has changed since a version, some of it maybe not announced yet; with the lock."""
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
            except Exception:  # noqa: BLE001  # who watches shall be told the next time
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
