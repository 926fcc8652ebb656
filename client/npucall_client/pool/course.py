"""The members that a call of a pool has tried, and whether it tries another one. No I/O.

A call that made a member's process end may do so to the next one too [src:pool-poison].
"""

from __future__ import annotations

import copy
import math
import time
from typing import TYPE_CHECKING

from npucall.errors import Repeat
from npucall_client.sending.losses import Losses
from npucall_client.sending.retry import PAUSES, delay_of

if TYPE_CHECKING:
    from npucall.errors import NpucallError
    from npucall_client.pool.table import Wanted


class Course:
    """One call, until ``timeout`` seconds from now."""

    __slots__ = (
        "_rounds", "at", "ends", "hosts", "losses", "request_id", "timeout", "tried", "waits",
        "wanted",
    )  # fmt: skip

    def __init__(
        self, wanted: Wanted, timeout: float, request_id: str = "", *, waits: bool = True
    ) -> None:
        self.wanted = wanted
        self.waits = waits
        """Whether it is tried again if all members are full."""
        self.request_id = request_id
        self.timeout = timeout
        self.ends = time.monotonic() + timeout
        self.at = ""
        """The address of the member where it is, or was last."""
        self.tried: dict[str, NpucallError] = {}
        """The errors of members by address, since the call was last tried with all of them."""
        self.hosts: set[str] = set()
        """Machines on which a member failed: other members there may have the same trouble."""
        self.losses: Losses | None = None
        """Its lost attempts; None until a connection broke."""
        self._rounds = 0

    @property
    def left(self) -> float:
        """Seconds until its timeout."""
        return max(0.0, self.ends - time.monotonic())

    def lost(self, error: NpucallError, address: str, instance: str, *, ended: bool) -> None:
        """A connection broke. Raises PoisonedCallError if the call must not be sent again."""
        if self.losses is None:
            self.losses = Losses(self.wanted.operator, self.request_id)
        self.losses.check(error, address, instance, ended=ended)

    def failed(self, address: str, host: str, error: NpucallError) -> bool:
        """A member did not answer the call. Returns whether another one may."""
        if error.repeat in (Repeat.NEVER, Repeat.LATER_HERE):
            return False
        self.tried[address] = copy.copy(error)  # without its traceback, which would keep the call
        if error.repeat is Repeat.FEW_TIMES:
            self.hosts.add(host)
        return True

    def said(self) -> NpucallError:
        """The error of the last member that was tried."""
        return copy.copy(next(reversed(self.tried.values())))

    def tried_all(self) -> float | None:
        """Seconds until the call is tried with all members again.

        None if that does not help, or if there is no time.
        """
        errors = self.tried.values()
        final = (Repeat.ELSEWHERE,) if self.waits else (Repeat.ELSEWHERE, Repeat.LATER)
        if all(error.repeat in final for error in errors):
            return None
        later = [delay_of(e) or math.inf for e in errors if e.repeat is Repeat.LATER]
        pause = PAUSES[min(self._rounds, len(PAUSES) - 1)]
        if len(later) == len(errors):
            pause = max(pause, min(later))
        if pause >= self.left:
            return None
        self._rounds += 1
        self.tried.clear()
        self.hosts.clear()
        return pause
