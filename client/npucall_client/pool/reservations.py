"""Reservations over a pool: each member grants its own; the client asks members in a fixed order.

A client holds nothing while it waits: if one member refuses, the client gives the others back and
starts again. So two clients that want the same members never wait for each other.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from npucall.errors import NpucallError, Repeat, ReservedError
from npucall_client.sending.reservations import Granted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.transport import PoolTransport
    from npucall_client.sending.channel import ChannelTransport

_AGAIN_SECONDS = 0.2
_RELEASE_SECONDS = 5.0


def keys_of(key: str) -> Mapping[str, str]:
    """The members' keys by address, from the key of a pool's reservation. Raises ValueError."""
    pairs = [part.partition("=") for part in key.split(";")]
    if not all(address and found for address, found, _ in pairs):
        raise ValueError(
            "reservation: expected the key of a pool's reservation, ADDRESS=KEY[;ADDRESS=KEY], "
            "found something else (NPUCALL_RESERVATION)"
        )
    return {address: own for address, _, own in pairs}


def _together(granted: Mapping[str, Granted]) -> Granted:
    """The grants of several members as one grant, which ends when the first of them ends."""
    return Granted(
        ";".join(f"{address}={each.key}" for address, each in granted.items()),
        min(each.ends_seconds for each in granted.values()),
        min(each.renew_within_seconds for each in granted.values()),
    )


class PoolReservations:
    """Makes, renews and ends reservations of the members of a pool."""

    def __init__(self, pool: PoolTransport) -> None:
        self._pool = pool

    async def reserve(self, seconds: float, wait: float, timeout: float, count: int) -> Granted:
        """Reserves ``count`` members that fit. Raises ReservedError if they do not become free."""
        ends = time.monotonic() + wait
        while True:
            granted: dict[str, Granted] = {}
            try:
                await self._reserve_all(granted, seconds, timeout, count)
            except BaseException as error:
                await self._give_back(granted)
                left = ends - time.monotonic()
                if not isinstance(error, NpucallError) or not _may_change(error):
                    raise
                if left <= 0:
                    raise
                await self._pool.wait(min(_AGAIN_SECONDS, left))
            else:
                return _together(granted)

    async def _reserve_all(
        self, granted: dict[str, Granted], seconds: float, timeout: float, count: int
    ) -> None:
        """Reserves in the order of addresses; adds each grant to ``granted``, to be given back."""
        chosen = self._chosen(count)
        for candidate in sorted(chosen, key=lambda each: each.address):
            try:
                link = await self._pool.link_of(candidate, timeout)
                granted[candidate.address] = await link.reserve(seconds, 0.0, timeout)
            except NpucallError as error:
                self._pool.note(candidate, error)
                raise

    def _chosen(self, count: int) -> list[Candidate[ChannelTransport]]:
        taken: dict[str, Candidate[ChannelTransport]] = {}
        while len(taken) < count:
            candidate = self._pool.table.take(tried=taken)
            if candidate is None:
                break
            taken[candidate.address] = candidate
        for candidate in taken.values():
            self._pool.table.give_back(candidate, 0, well=False)
        if len(taken) < count:
            raise ReservedError(
                f"reserve: expected {count} members that take calls and that nobody has reserved, "
                f"found {len(taken)} of {len(self._pool.table.known)}; ask for fewer, or wait"
            )
        return list(taken.values())

    async def _give_back(self, granted: Mapping[str, Granted]) -> None:
        for address, each in granted.items():
            with suppress(NpucallError):
                await self._release(address, each.key, _RELEASE_SECONDS)

    async def renew(self, key: str, timeout: float) -> Granted:
        """Renews it on every member. Raises ReservedError if it has ended on one of them."""
        return _together(
            {
                address: await (await self._candidate_link(address, timeout)).renew(own, timeout)
                for address, own in keys_of(key).items()
            }
        )

    async def release(self, key: str, timeout: float) -> None:
        """Ends it on every member; without a key, ends every member's reservation, also others'."""
        keys = keys_of(key) if key else dict.fromkeys(self._pool.table.known, "")
        failures = []
        for address, own in keys.items():
            try:
                await self._release(address, own, timeout)
            except NpucallError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def _release(self, address: str, key: str, timeout: float) -> None:
        await (await self._candidate_link(address, timeout)).release(key, timeout)

    async def _candidate_link(self, address: str, timeout: float) -> ChannelTransport:
        candidate = self._pool.table.of(address)
        if candidate is None:
            raise ReservedError(
                f"{address} has left the pool, and the reservation ended with it; reserve again"
            )
        link = await self._pool.links.of(candidate, timeout)
        return link.repeating(self._pool.check_open)


def _may_change(error: NpucallError) -> bool:
    """Whether other members may grant it, or this one later."""
    return error.repeat is not Repeat.NEVER
