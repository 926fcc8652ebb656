"""Who a caller is, and what proved it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from npucall_server.settings.tenants import Role

_KEPT_PEERS = 1024
_THIS_HOST = "ipv4:127.0.0.1"


class KnownBy(StrEnum):
    """What proved who the caller is. The names are those of the proto."""

    NOTHING = "nothing"
    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105  # no password
    JWT = "jwt"
    LOCAL_USER = "local user"


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller of a tenant. If the server has no tenants, the tenant's name is empty."""

    tenant: str
    name: str
    """Unique within the tenant. If nothing proved who the caller is: its host."""
    role: Role
    known_by: KnownBy
    expires: float = math.inf
    """Seconds since 1970 at which the credential ends."""
    owner: str = ""
    """Who a call counts for in limits and shares. If nothing proved who the caller is: its
    connection; else the person."""
    proved_by: str = ""
    """What the tenant was found by: the hash of a token, a name in a certificate, the value of a
    claim, or the number of a user."""
    names: tuple[str, ...] = ()
    """All names in its certificate, if a certificate proved who it is."""
    person: str = field(init=False)
    """The caller's name, unique on this server. Memory, messages and charges are by person."""

    def __post_init__(self) -> None:
        person = f"{self.tenant}/{self.name}" if self.tenant else self.name
        object.__setattr__(self, "person", person)
        object.__setattr__(self, "owner", self.owner or person)


@lru_cache(_KEPT_PEERS)
def anybody(peer: str) -> Identity:
    """The caller of a connection, on a server without tenants. It may do everything.

    Its name is the address without the port: a client has connections over gRPC and of frames, each
    with its own port, or at a Unix socket, which is of this host.
    """
    host, _, port = peer.rpartition(":")
    name = host if port.isdecimal() else peer
    if name.startswith("unix"):
        name = _THIS_HOST
    return Identity("", name, Role.ADMIN, KnownBy.NOTHING, owner=peer)


def whose(owner: str) -> tuple[str, str]:
    """The tenant and name of the caller of an owner, which is a person or a connection."""
    tenant, slash, name = owner.partition("/")
    if slash and ":" not in tenant:  # no tenant's name has a colon, all connections have
        return tenant, name
    return "", anybody(owner).name
