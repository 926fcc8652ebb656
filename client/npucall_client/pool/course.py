"""A call on its way over the members of a pool: where it was, and whether it goes on. No I/O.

A call that ended a member may end the next one too [src:pool-poison].
"""

from __future__ import annotations

import copy
import math
import time
from typing import TYPE_CHECKING

from npucall.errors import Repeat
from npucall_client.remote.losses import Losses
from npucall_client.remote.retry import PAUSES, delay_of

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
        """Whether it is tried again where all of them are full."""
        self.request_id = request_id
        self.timeout = timeout
        self.ends = time.monotonic() + timeout
        self.at = ""
        """The address where it is, or was last."""
        self.tried: dict[str, NpucallError] = {}
        """What members said since it was last tried with all of them, by address."""
        self.hosts: set[str] = set()
        """Machines on which a member broke off: others there may have the same trouble."""
        self.losses: Losses | None = None
        """What was lost of it; None until a connection broke."""
        self._rounds = 0

    @property
    def left(self) -> float:
        """Seconds that it has."""
        return max(0.0, self.ends - time.monotonic())

    def lost(self, error: NpucallError, address: str, instance: str, *, ended: bool) -> None:
        """A connection broke. Raises PoisonedCallError where the call must not be sent again."""
        if self.losses is None:
            self.losses = Losses(self.wanted.operator, self.request_id)
        self.losses.check(error, address, instance, ended=ended)

    def failed(self, address: str, host: str, error: NpucallError) -> bool:
        """A member did not answer it; whether another one may."""
        if error.repeat in (Repeat.NEVER, Repeat.LATER_HERE):
            return False
        self.tried[address] = copy.copy(error)  # without how it came: that would keep the call
        if error.repeat is Repeat.FEW_TIMES:
            self.hosts.add(host)
        return True

    def said(self) -> NpucallError:
        """What the last of them said."""
        return copy.copy(next(reversed(self.tried.values())))

    def tried_all(self) -> float | None:
        """Seconds until it is tried with all of them again.

        None where there is no sense in it, or no time.
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
