"""Who a caller is, and by what the server knows it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import lru_cache

TENANT_PATTERN = r"[a-z0-9][a-z0-9_.-]{0,62}"
"""Of the name of a tenant, whole."""
_KEPT_PEERS = 1024


class Role(IntEnum):
    """What a caller may do; who may do more has a higher one. The names are those of the proto."""

    SERVER = 1
    """Announce a server to a directory, and nothing else."""
    USER = 2
    """Run calls, and see its own usage."""
    BENCH = 3
    """Reserve the device besides."""
    ADMIN = 4
    """See everybody's usage, and end reservations besides."""

    @classmethod
    def named(cls, name: str) -> Role:
        """The role of a name as settings spell it, such as user. Raises KeyError."""
        return cls[name.upper()]


class KnownBy(StrEnum):
    """What proved who the caller is. The names are those of the proto."""

    NOTHING = "nothing"
    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105  # no password
    JWT = "jwt"
    LOCAL_USER = "local user"


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller of a tenant. Where the server has no tenants, all have the one without a name."""

    tenant: str
    name: str
    """Unique within the tenant. Of a caller that is known by nothing: its host."""
    role: Role
    known_by: KnownBy
    expires: float = math.inf
    """Seconds since 1970 at which the credential ends."""
    owner: str = ""
    """Whom a call counts for, wherever what callers hold is limited or shared. Of a caller that is
    known by nothing: its connection; else the person."""
    proved_by: str = ""
    """What the tenant follows from: hash of a token, name in a certificate, value of a claim,
    number of a user."""
    names: tuple[str, ...] = ()
    """All those in its certificate, if it is known by one."""
    person: str = field(init=False)
    """The caller's name, unique on this server: whose memory it is, who is told and charged."""

    def __post_init__(self) -> None:
        person = f"{self.tenant}/{self.name}" if self.tenant else self.name
        object.__setattr__(self, "person", person)
        object.__setattr__(self, "owner", self.owner or person)


@lru_cache(_KEPT_PEERS)
def anybody(peer: str) -> Identity:
    """Who calls from a connection, on a server that has no tenants: it may do everything.

    Its name is the address without the port: each connection has another, and a client has two.
    """
    host, _, port = peer.rpartition(":")
    name = host if port.isdecimal() else peer
    return Identity("", name, Role.ADMIN, KnownBy.NOTHING, owner=peer)


def whose(owner: str) -> tuple[str, str]:
    """Tenant and name of the caller that an owner stands for: a person, or a connection."""
    tenant, slash, name = owner.partition("/")
    if slash and ":" not in tenant:  # no tenant's name has a colon, all connections have
        return tenant, name
    return "", anybody(owner).name
