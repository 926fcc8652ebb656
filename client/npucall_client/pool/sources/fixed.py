"""``pool:HOST:PORT,HOST:PORT``: members that never change."""

from __future__ import annotations

from collections.abc import Sequence

from npucall_client.pool.members import Member, Update
from npucall_client.settings import ClientSettings


def opened(_: ClientSettings, told: Sequence[str]) -> FixedSource:
    """The members that the target names."""
    return FixedSource(told)


class FixedSource:
    """Lists the addresses of the target."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._members = [Member(address) for address in addresses]

    def start(self, update: Update) -> None:
        """Lists all of them, at once."""
        update(self._members, complete=True)

    def look(self) -> None:
        """Does nothing: the members never change."""

    def why_empty(self) -> str:
        """Nothing: the list is never empty."""
        return ""

    def refusal(self) -> None:
        """None: it asks no server that could refuse."""

    def close(self) -> None:
        """Does nothing."""
