"""Whether a call is sent once more, and when: one rule for calls, streams and everything else.

If a server restarts, the client asks it again after pauses that grow. A server that is full says
when it may have room (RetryInfo): the client waits so long, and a little more by chance, so that
callers that were refused together do not come back together.

The errors themselves say if a repeat may help (``npucall.errors.Repeat``). Nothing waits in this
module, so that the client for asyncio obeys the same rule.
"""

from __future__ import annotations

import math
import random
import time
from typing import TYPE_CHECKING, TypeVar

from npucall.errors import NpucallError, Repeat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

PAUSES = (0.1, 0.3, 0.9, 2.7)
"""Seconds before each further attempt; the last one counts for all that follow."""


HERE = (Repeat.HERE, Repeat.FEW_TIMES)
LATER = (Repeat.LATER, Repeat.LATER_HERE)
_SHORTEST_DELAY = 0.02
_SPREAD = 1.25
"""The longest delay, as a multiple of what the server says."""


def delay_of(error: NpucallError) -> float | None:
    """Seconds until a server that is full may have room; None if it does not say."""
    if error.repeat not in LATER or error.retry_after is None:
        return None
    return max(_SHORTEST_DELAY, error.retry_after) * random.uniform(1.0, _SPREAD)  # noqa: S311


class Attempts:
    """The attempts at one call that may go on until ``ends``, on the clock of ``monotonic``.

    ``waits``: whether they wait for a server that is full. ``alone``: no other server can answer
    the call; otherwise they wait only for a limit of the caller's own.
    """

    def __init__(self, ends: float = math.inf, *, waits: bool = True, alone: bool = True) -> None:
        self._ends = ends
        self._waits = waits
        self._here = HERE if alone else ()
        self._later = LATER if alone else (Repeat.LATER_HERE,)
        self._failures = 0

    def may_follow(self, error: NpucallError) -> bool:
        """Whether another attempt follows one that failed with this error.

        There is none if the pause would be too long: the caller gets the error now and not later.
        ``losses`` says whether the call itself makes its servers end.
        """
        return self._pause(error) is not None

    def pause_after(self, error: NpucallError) -> float | None:
        """Seconds until the next attempt, which is counted; None if there is none."""
        pause = self._pause(error)
        if pause is not None and error.repeat in self._here:
            self._failures += 1
        return pause

    def _pause(self, error: NpucallError) -> float | None:
        pause = None
        if error.repeat in self._here:
            pause = PAUSES[min(self._failures, len(PAUSES) - 1)]
        elif self._waits and error.repeat in self._later:
            pause = delay_of(error)
        return pause if pause is not None and time.monotonic() + pause < self._ends else None


async def repeated(
    attempt: Callable[[float], Awaitable[T]],
    timeout: float,
    wait: Callable[[float], Awaitable[object]],
    attempts_until: Callable[[float], Attempts] = Attempts,
) -> T:
    """The result of an attempt, made again while that may help and the timeout allows.

    ``attempt`` gets the seconds that are left and raises NpucallError; ``wait`` gets the seconds of
    a pause.
    """
    ends = time.monotonic() + timeout
    attempts = attempts_until(ends)
    while True:
        # No name keeps the error after its block: its traceback would keep the tensors.
        try:
            return await attempt(max(0.0, ends - time.monotonic()))
        except NpucallError as error:
            pause = attempts.pause_after(error)
            if pause is None:
                raise
        await wait(pause)
