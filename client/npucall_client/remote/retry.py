"""Whether a call is sent once more, and when: one rule for calls, streams, and whatever comes.

Which errors are worth it the errors themselves say (``npucall.errors.Repeat``). Nothing waits here,
so that who awaits obeys the same rule.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, TypeVar

from npucall.errors import NpucallError, Repeat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

PAUSES = (0.1, 0.3, 0.9, 2.7)
"""Seconds before each further attempt; the last one counts for all that follow."""


class Attempts:
    """The attempts at one call that may go on until ``ends``, on the clock of ``monotonic``."""

    def __init__(self, ends: float = math.inf) -> None:
        self._ends = ends
        self._failures = 0

    def may_follow(self, error: NpucallError) -> bool:
        """Whether there is another attempt behind one that failed so.

        Not where the pause is too long: better told now what is wrong than late later. Whether the
        call itself ends its servers ``losses`` says.
        """
        if error.repeat not in (Repeat.HERE, Repeat.FEW_TIMES):
            return False
        return time.monotonic() + self._pause() < self._ends

    def pause_after(self, error: NpucallError) -> float | None:
        """Seconds until the next attempt, which is counted; None where there is none."""
        if not self.may_follow(error):
            return None
        pause = self._pause()
        self._failures += 1
        return pause

    def _pause(self) -> float:
        return PAUSES[min(self._failures, len(PAUSES) - 1)]


async def repeated(
    attempt: Callable[[float], Awaitable[T]],
    timeout: float,
    wait: Callable[[float], Awaitable[object]],
) -> T:
    """What an attempt gives; made again while that is worth it and the timeout allows.

    ``attempt`` gets the seconds that are left and raises NpucallError, ``wait`` those of a pause.
    """
    ends = time.monotonic() + timeout
    attempts = Attempts(ends)
    while True:
        # The error has no name beyond its block: its traceback would keep it, and the tensors.
        try:
            return await attempt(max(0.0, ends - time.monotonic()))
        except NpucallError as error:
            pause = attempts.pause_after(error)
            if pause is None:
                raise
        await wait(pause)
