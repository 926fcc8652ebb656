"""``pool:dns:NAME:PORT``: a member for each address that a name has."""

from __future__ import annotations

import socket

from npucall.membership import check_address
from npucall_client.pool.members import Member
from npucall_client.pool.sources.poller import Poller
from npucall_client.sending.credentials import credential_of
from npucall_client.settings import ClientSettings

PAUSE_SECONDS = 10.0
"""Time between two questions."""


def opened(settings: ClientSettings, told: tuple[str, int]) -> Poller:
    """The addresses of a name. Raises ValueError for a token without TLS: it may lead anywhere."""
    credential_of(settings)
    return Poller(Resolver(*told), PAUSE_SECONDS, "npucall-dns")


class Resolver:
    """Asks the system for the addresses of a name. The members' certificates must have NAME."""

    def __init__(self, name: str, port: int) -> None:
        self._name, self._port = name, port

    def listed(self) -> list[Member]:
        """A member for each address. Raises OSError if the name has none, or without an answer."""
        try:
            found = socket.getaddrinfo(
                self._name, self._port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        except OSError as error:
            raise OSError(
                f"{self._name}: the name has no addresses: {error.strerror or error}"
            ) from error
        addresses = {_address(family, str(where[0]), self._port) for family, *_, where in found}
        return [Member(address, server_name=self._name) for address in sorted(addresses)]

    def why_not(self) -> str:
        """Nothing: a name without addresses is an error of ``listed``."""
        return ""


def _address(family: int, host: str, port: int) -> str:
    return check_address(f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}")
