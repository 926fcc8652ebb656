"""Finds out who calls, before anything of the call is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from npucall.errors import PermissionDeniedError
from npucall_server.access.identity import Identity, Role, anybody

if TYPE_CHECKING:
    from collections.abc import Mapping

    import grpc


ANNOUNCE = "Announce"
"""The method of servers."""


class Guard(Protocol):
    """Knows callers. Safe to use from several threads."""

    def identify(
        self, peer: str, metadata: Mapping[str, str | bytes], context: grpc.ServicerContext
    ) -> Identity:
        """Who calls. Raises UnauthenticatedError where that is not known."""

    def renew(self, identity: Identity, authorization: str) -> Identity:
        """The same caller proves anew who it is. Raises UnauthenticatedError."""

    def check(self, identity: Identity) -> None:
        """Raises UnauthenticatedError where who was known is so no more: expired, or revoked."""


class OpenGuard:
    """Of a server without tenants: takes calls of anybody."""

    def identify(
        self, peer: str, metadata: Mapping[str, str | bytes], context: grpc.ServicerContext
    ) -> Identity:
        """By its connection."""
        del metadata, context
        return anybody(peer)

    def renew(self, identity: Identity, authorization: str) -> Identity:
        """It knows no credential, and needs none."""
        del authorization
        return identity

    def check(self, identity: Identity) -> None:
        """Anybody stays anybody."""


def check_method(identity: Identity, method: str) -> None:
    """Raises PermissionDeniedError where a server asks for anything but to announce itself."""
    if identity.role is Role.SERVER and method != ANNOUNCE:
        raise PermissionDeniedError(
            f"{method}: {identity.person} has the role server, which may announce servers to a "
            "directory and nothing else",
            role=identity.role.name.lower(),
        )


def require(identity: Identity, role: Role, what: str) -> None:
    """Raises PermissionDeniedError where the caller's role is less. ``what`` it asks for."""
    if identity.role < role:
        raise PermissionDeniedError(
            f"{what}: expected a caller with the role {role.name.lower()}, found {identity.person} "
            f"with the role {identity.role.name.lower()}; the settings of tenants give roles",
            role=identity.role.name.lower(),
        )
