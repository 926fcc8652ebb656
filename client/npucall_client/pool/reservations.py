"""Reservations over a pool: each member grants its own; the client asks members in a fixed order.

A client holds nothing while it waits: if one member refuses, the client gives the others back and
starts again. So two clients that want the same members never wait for each other.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from npucall.errors import NpucallError, ReservedError
from npucall_client.sending.attempts import Attempts
from npucall_client.sending.remote import ServerTransport
from npucall_client.sending.request import Request
from npucall_client.sending.reservations import ServerGrant, keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall_client.pool.candidate import Candidate
    from npucall_client.pool.choice import Members
    from npucall_client.sending.link import Link

_AGAIN_SECONDS = 0.2
_RELEASE_SECONDS = 5.0


def _together(granted: Mapping[str, ServerGrant]) -> ServerGrant:
    """The grants of several members as one grant, which ends when the first of them ends."""
    return ServerGrant(
        ";".join(f"{address}={each.key}" for address, each in granted.items()),
        min(each.ends_seconds for each in granted.values()),
        min(each.renew_within_seconds for each in granted.values()),
    )


class PoolReservations:
    """Makes, renews and ends reservations of the members of a pool."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def reserve(
        self, request: Request, seconds: float, wait: float, count: int
    ) -> ServerGrant:
        """Reserves ``count`` members that fit. Raises ReservedError if they do not become free."""
        once = request._replace(once=True)

        async def attempt(choice: _Choice, _: Attempts) -> ServerGrant:
            try:
                for candidate in sorted(self._chosen(count), key=lambda each: each.address):
                    member = await self._member(candidate, once.timeout)
                    granted = await member.reserve(once, seconds, 0.0)
                    choice.granted[candidate.address] = granted
            except BaseException:
                await self._give_back(choice.granted)
                raise
            return _together(choice.granted)

        choice = _Choice(self._members)
        return await Attempts(request._replace(timeout=wait)).run(choice, attempt)

    async def _member(self, candidate: Candidate[Link], timeout: float) -> ServerTransport:
        try:
            return ServerTransport(await self._members.links.of(candidate, timeout))
        except NpucallError as error:
            self._members.note(candidate, error)
            raise

    def _chosen(self, count: int) -> list[Candidate[Link]]:
        table = self._members.table
        taken: dict[str, Candidate[Link]] = {}
        while len(taken) < count:
            candidate = table.take(tried=taken)
            if candidate is None:
                break
            taken[candidate.address] = candidate
        for candidate in taken.values():
            table.give_back(candidate, 0, well=False)
        if len(taken) < count:
            raise ReservedError(
                f"reserve: expected {count} members that take calls and that nobody has reserved, "
                f"found {len(taken)} of {len(table.known)}; ask for fewer, or wait"
            )
        return list(taken.values())

    async def _give_back(self, granted: dict[str, ServerGrant]) -> None:
        for address, each in granted.items():
            with suppress(NpucallError):
                await (await self._at(address, _RELEASE_SECONDS)).release(
                    Request(_RELEASE_SECONDS), each.key
                )
        granted.clear()

    async def renew(self, request: Request, key: str) -> ServerGrant:
        """Renews it on every member. Raises ReservedError if it has ended on one of them."""
        return _together(
            {
                address: await (await self._at(address, request.timeout)).renew(request, own)
                for address, own in keys_of(key).items()
            }
        )

    async def release(self, request: Request, key: str) -> None:
        """Ends it on every member; without a key, ends every member's reservation, also others'."""
        keys = keys_of(key) if key else dict.fromkeys(self._members.table.known, "")
        failures = []
        for address, own in keys.items():
            try:
                await (await self._at(address, request.timeout)).release(request, own)
            except NpucallError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    async def _at(self, address: str, timeout: float) -> ServerTransport:
        candidate = self._members.table.of(address)
        if candidate is None:
            raise ReservedError(
                f"{address} has left the pool, and the reservation ended with it; reserve again"
            )
        return ServerTransport(await self._members.links.of(candidate, timeout))


class _Choice:
    """Several members at once, as ``attempts.Where``: if one refuses, others may grant it."""

    only = None
    target = "the pool"
    instance = ""

    def __init__(self, members: Members) -> None:
        self._members = members
        self.granted: dict[str, ServerGrant] = {}

    async def take(self, attempts: Attempts) -> _Choice:
        self._members.check_open()
        attempts.place = self
        return self

    def give_back(self, attempts: Attempts, error: BaseException | None) -> None:
        """Does nothing: who holds nothing has given all back."""

    def elsewhere(self, attempts: Attempts, error: NpucallError) -> float | None:
        del error
        return min(_AGAIN_SECONDS, attempts.left) or None

    async def wait(self, seconds: float) -> None:
        await self._members.wait(seconds)

    async def has_another(self, error: NpucallError, sent: str) -> bool:
        """Each member was asked with another credential already."""
        del error, sent
        return False

    def withdraw(self, request: Request) -> bool:
        """A reservation has no arrays."""
        del request
        return False

    async def ask(self, attempts: Attempts) -> None:
        """Each member was asked what it is already."""

    async def has_ended(self, instance: str | None) -> bool:
        """A reservation ends no process."""
        del instance
        return False
