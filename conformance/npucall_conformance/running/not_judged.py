"""Cases that were not judged, and why: a missing answer is not a wrong answer."""

from __future__ import annotations

import time
from threading import Lock

from npucall.errors import NpucallError, QueueFullError, QuotaError, ReservedError

BUSY: dict[str, str] = {
    QuotaError.reason: "the caller's quota is used up",
    QueueFullError.reason: "its queue is full",
    ReservedError.reason: "somebody has reserved its device",
}
"""Reasons of errors that say nothing about an operator, and their meanings."""

_A_CALL, _A_RUN = 30.0, 300.0
"""How many seconds to wait, for a call and in a run, for servers that say when they take calls."""


class NotJudgedError(Exception):
    """A case that could not be judged; the text says why."""

    def __init__(self, reason: str, *, lowers: bool = True) -> None:
        super().__init__(reason)
        self.lowers = lowers
        """The case should have been judged here, so that it lowers the verdict."""


class Patience:
    """How long a run waits for a server that has too much to do."""

    def __init__(self, a_call: float = _A_CALL, a_run: float = _A_RUN) -> None:
        self._a_call = a_call
        self._left = a_run
        self._lock = Lock()

    def ends(self) -> float:
        """Until when a call that begins now may be sent again, on the clock of ``monotonic``."""
        return time.monotonic() + self._a_call

    def wait(self, error: NpucallError, ends: float, target: str) -> None:
        """Waits as long as the error says.

        Raises NotJudgedError if the error does not say how long, or if that is too long. Raises the
        error itself if it is not in ``BUSY``.
        """
        if error.reason not in BUSY:
            raise error
        pause = error.retry_after
        if pause is None or time.monotonic() + pause > ends or not self._takes(pause):
            why = f"{target} answered {error.reason}: {BUSY[error.reason]}"
            raise NotJudgedError(why) from error
        time.sleep(pause)

    def _takes(self, seconds: float) -> bool:
        with self._lock:
            enough = seconds <= self._left
            self._left -= seconds if enough else 0.0
        return enough
