"""Decides when a server is started, restarted, given up: a state machine without threads or Ray."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    Clock = Callable[[], float]

NEEDS_A_PERSON = {
    2: "its settings are wrong",
    69: "its device or its libraries were not found",
    127: "its program cannot be started",
}
"""Exit codes after which another start would end the same way."""
WAS_ASKED = {0: "it had been asked to stop", 75: "it had been asked to stop, and calls were cut"}
"""Exit codes of a server that was asked to stop."""
PAUSES, MANY_SECONDS = (0.5, 2.0), 60.0
"""Seconds to wait before a restart: after the first end, and after the second one in a minute.

After the third one the keeper gives the server up.
"""


class Child(Protocol):
    """A server's process."""

    def exit_code(self) -> int | None:
        """None while it runs. If a signal ended it: minus the signal's number."""

    def answers(self) -> bool:
        """Whether it has said that it serves."""

    def last_words(self) -> str:
        """The last part of its output."""

    def terminate(self) -> None:
        """Asks it to finish its calls and to end."""

    def kill(self) -> None:
        """Ends it."""


class Phase(StrEnum):
    """The state of a server."""

    STARTING = "starting"
    SERVING = "serving"
    PAUSING = "pausing"
    """It ended, and will be started again soon."""
    OUT = "out"
    """It ended, and will not be started again: a person has to look."""
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass
class Course:
    """The history of a server so far."""

    phase: Phase = Phase.STARTING
    starts: int = 0
    why: str = ""
    """The reason of the last end that was not asked for; empty if there was none."""
    exit_code: int | None = None
    """The exit code of the last end."""


class Keeper:
    """Keeps one server. Its owner calls ``look`` several times a second, from one thread."""

    def __init__(self, start: Callable[[], Child], clock: Clock = time.monotonic) -> None:
        self.course = Course()
        self._start = start
        self._clock = clock
        self._child: Child | None = None
        self._ends: list[float] = []
        self._next = clock()
        """The time of the next start or kill."""

    def look(self) -> None:
        """Does what is necessary now: starts the server, restarts it, or kills it."""
        if self._child is not None and (code := self._child.exit_code()) is not None:
            self._has_ended(self._child, code)
        phase, due = self.course.phase, self._clock() >= self._next
        if phase in (Phase.STARTING, Phase.PAUSING) and self._child is None and due:
            self._begin()
        elif phase is Phase.STARTING and self._child is not None and self._child.answers():
            self.course.phase = Phase.SERVING
        elif phase is Phase.STOPPING and self._child is not None and due:
            self._child.kill()

    def stop(self, patience: float) -> None:
        """Ends the server: asks it to end, and kills it after ``patience`` seconds."""
        if self._child is None:
            self.course.phase = Phase.STOPPED
            return
        if self.course.phase is not Phase.STOPPING:
            self.course.phase, self._next = Phase.STOPPING, self._clock() + patience
            self._child.terminate()

    def again(self) -> None:
        """Starts a server that is out or was stopped, as if it had never ended."""
        if self.course.phase in (Phase.OUT, Phase.STOPPED):
            self._ends.clear()
            self.course.phase, self._next = Phase.STARTING, self._clock()

    def _begin(self) -> None:
        self.course.phase = Phase.STARTING
        self.course.starts += 1
        try:
            self._child = self._start()
        except OSError as error:
            self._leave(f"it cannot be started: {error}")

    def _has_ended(self, child: Child, code: int) -> None:
        self._child, self.course.exit_code = None, code
        if self.course.phase is Phase.STOPPING:
            self.course.phase = Phase.STOPPED
            return
        ended = _described(code, child.last_words())
        if code in NEEDS_A_PERSON or code in WAS_ASKED:
            self._leave(ended)
            return
        now = self._clock()
        self._ends = [*(end for end in self._ends if end > now - MANY_SECONDS), now]
        if len(self._ends) > len(PAUSES):
            self._leave(f"{len(self._ends)} ends in {MANY_SECONDS:g} s; the last one: {ended}")
            return
        self._next = now + PAUSES[len(self._ends) - 1]
        self.course.phase, self.course.why = Phase.PAUSING, ended

    def _leave(self, why: str) -> None:
        self.course.phase, self.course.why = Phase.OUT, why


def _described(code: int, last_words: str) -> str:
    """Describes an end in words."""
    known = {**NEEDS_A_PERSON, **WAS_ASKED}
    ended = f"signal {-code}" if code < 0 else f"exit code {code}"
    meaning = f", {known[code]}" if code in known else ""
    return f"{ended}{meaning}{': ' if last_words else ''}{last_words}"
