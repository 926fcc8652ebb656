"""Which hosts a caller may announce. Else anybody could make clients send their tensors to him."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from npucall.errors import PermissionDeniedError
from npucall_server.access import belonging
from npucall_server.access.identity import Identity, KnownBy
from npucall_server.settings.tenants import Role, Tenants


class Hosts:
    """Says who may announce which host.

    Without tenants whoever may announce may announce any host. ``anybody``: everybody may.
    """

    def __init__(self, tenants: Tenants, *, anybody: bool = False) -> None:
        self._tenants, self._anybody = tenants, anybody

    def check(self, identity: Identity, host: str, *, is_private: bool = False) -> None:
        """Raises PermissionDeniedError if a caller may not announce a host.

        ``is_private``: its connection shows a certificate, or is over the directory's Unix socket,
        which the system opens only to the user of the directory.
        """
        if identity.known_by is KnownBy.NOTHING:
            if not (is_private or self._anybody):
                raise _denied(
                    identity,
                    "expected a Unix socket of the directory (--listen unix:PATH), or a server "
                    "with a credential, found a connection over TCP to a directory without "
                    "tenants; insecure_bind (--insecure-bind) lets everybody announce servers",
                )
            return
        if identity.role is not Role.SERVER:
            raise _denied(
                identity,
                f"expected a caller with the role server, found {identity.person} with the role "
                f"{identity.role.name.lower()}",
            )
        host = _plain(host)
        patterns = map(str.lower, self._tenants.of(identity.tenant).hosts)
        if not (belonging.any_matches(patterns, host) or _is_named(identity.names, host)):
            raise _denied(
                identity,
                f"expected a host that {identity.person} may announce, found {host}; its "
                "certificate and the directory's settings (tenants, hosts) name those hosts",
            )


def _is_named(names: Iterable[str], host: str) -> bool:
    """Whether a certificate with these names is good for a host, as clients judge it."""
    rest = host.partition(".")[2]
    return any(_plain(name) in (host, f"*.{rest}" if rest else host) for name in names)


def _plain(host: str) -> str:
    """A host, spelled for comparison: names in lower case, addresses in one spelling."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _denied(identity: Identity, why: str) -> PermissionDeniedError:
    return PermissionDeniedError(f"announce: {why}", role=identity.role.name.lower())
