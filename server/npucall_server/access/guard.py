"""Finds out who calls, before the server reads anything of the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from npucall.errors import PermissionDeniedError
from npucall.wire.rpcs import ANNOUNCE
from npucall_server.access.identity import Identity, anybody
from npucall_server.settings.tenants import Role

NAMES, PEM = "x509_subject_alternative_name", "x509_pem_cert"
"""Keys of what gRPC tells of a caller's certificate."""


class ProvedPeer(Protocol):
    """What TLS has proved of a caller, under gRPC's names."""

    def peer_identities(self) -> Iterable[bytes] | None:
        """The names in its certificate."""

    def auth_context(self) -> Mapping[str, Any]:
        """All of it; the certificate as PEM."""


class Guard(Protocol):
    """Finds out who callers are. Safe to use from several threads."""

    @property
    def asks(self) -> bool:
        """Whether callers have to prove who they are."""

    def identify(
        self, peer: str, metadata: Mapping[str, str | bytes], connection: ProvedPeer
    ) -> Identity:
        """Who calls. Raises UnauthenticatedError if that is not known."""

    def renew(self, identity: Identity, authorization: str) -> Identity:
        """The same caller proves again who it is. Raises UnauthenticatedError."""

    def check(self, identity: Identity) -> None:
        """Raises UnauthenticatedError if the caller's credential has expired or been revoked."""


class OpenGuard:
    """The guard of a server without tenants: it accepts calls from anybody."""

    asks = False

    def identify(
        self, peer: str, metadata: Mapping[str, str | bytes], connection: ProvedPeer
    ) -> Identity:
        """The caller is known by its connection."""
        del metadata, connection
        return anybody(peer)

    def renew(self, identity: Identity, authorization: str) -> Identity:
        """This guard needs no credential, so the identity stays the same."""
        del authorization
        return identity

    def check(self, identity: Identity) -> None:
        """Does nothing: callers have no credential that could expire."""


def check_method(identity: Identity, method: str) -> None:
    """Raises PermissionDeniedError if a server calls any method but Announce."""
    if identity.role is Role.SERVER and method != ANNOUNCE.name:
        raise PermissionDeniedError(
            f"{method}: {identity.person} has the role server, which may announce servers to a "
            "directory and nothing else",
            role=identity.role.name.lower(),
        )


def require(identity: Identity, role: Role, what: str) -> None:
    """Raises PermissionDeniedError if the caller's role is lower. ``what``: what it asks for."""
    if identity.role < role:
        raise PermissionDeniedError(
            f"{what}: expected a caller with the role {role.name.lower()}, found {identity.person} "
            f"with the role {identity.role.name.lower()}; the settings of tenants give roles",
            role=identity.role.name.lower(),
        )
