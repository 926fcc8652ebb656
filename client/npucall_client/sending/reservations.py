"""A reservation of the device, from its grant to its release; it is renewed in the background."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from npucall.errors import CancelledError, NpucallError, ReservedError
from npucall_client.sending.request import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall_client.sending.senders import Sender

RUNNING_SECONDS = 5.0
"""Seconds that a server gives calls of others to end, even if the caller does not wait."""
_RENEWALS_A_LEASE = 3
_RELEASE_SECONDS = 5.0
_LONGEST_PAUSE = 3600.0


class ServerGrant(NamedTuple):
    """A server's grant. The key is empty if the caller shares the device with nobody."""

    key: str
    ends_seconds: float
    renew_within_seconds: float


class ReservationKeeper(Protocol):
    """Renews and releases."""

    async def renew(self, request: Request, key: str) -> ServerGrant:
        """Renews a reservation. Raises ReservedError if it has ended."""

    async def release(self, request: Request, key: str) -> None:
        """Ends a reservation."""


class Renewal:
    """Renews a reservation until it is closed, lost, or at its end."""

    def __init__(self, holder: ReservationKeeper, granted: ServerGrant, sender: Sender) -> None:
        self.key = granted.key
        self._holder = holder
        self._ends = time.monotonic() + granted.ends_seconds
        self._pause = granted.renew_within_seconds / _RENEWALS_A_LEASE
        self._stop = sender.event()
        self._lost: ReservedError | None = None
        self._task = sender.start(self._renew, "npucall-reservation")

    @property
    def remaining(self) -> float:
        """Seconds until it ends, at most; 0 if it has ended or was lost."""
        over = self._lost is not None or self._stop.is_set()
        return 0.0 if over else max(0.0, self._ends - time.monotonic())

    def check(self) -> None:
        """Raises ReservedError if it was lost, CancelledError if it was closed."""
        if self._stop.is_set():
            raise CancelledError("this client has released the reservation; reserve again")
        if self._lost is not None:
            raise ReservedError(str(self._lost)) from self._lost

    async def close(self) -> None:
        """Releases it. If the server does not answer, it ends by itself."""
        if self._stop.is_set():
            return
        self._stop.set()
        with suppress(NpucallError):
            await self._holder.release(Request(_RELEASE_SECONDS), self.key)
        await self._task.join()

    async def _renew(self) -> None:
        """Renews in the background, also while the server does not answer: it may be restarting."""
        while not await self._stop.wait(min(self._pause, _LONGEST_PAUSE)):
            try:
                granted = await self._holder.renew(Request(max(self._pause, 1.0)), self.key)
            except ReservedError as error:
                self._lost = error
                return
            except CancelledError:
                return  # the client was closed
            except NpucallError:
                continue
            # An upper limit, since the answer took time. A renewal never makes the end later.
            self._ends = min(self._ends, time.monotonic() + granted.ends_seconds)


def check_one(count: int) -> None:
    """Raises ValueError unless one device is wanted: there is only one."""
    if count != 1:
        raise ValueError(
            f"count: expected 1, since the target is one server, found {count}; a pool has several"
        )


@lru_cache(64)
def keys_of(key: str) -> Mapping[str, str]:
    """The members' keys by address, from the key of a pool's reservation. Raises ValueError."""
    pairs = [part.partition("=") for part in key.split(";")]
    if not all(address and found for address, found, _ in pairs):
        raise ValueError(
            "reservation: expected the key of a pool's reservation, ADDRESS=KEY[;ADDRESS=KEY], "
            "found something else (NPUCALL_RESERVATION)"
        )
    return {address: own for address, _, own in pairs}
