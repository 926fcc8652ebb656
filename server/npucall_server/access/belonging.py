"""Finds the tenant that a caller belongs to. By default a caller belongs to none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from npucall.errors import TenantUnknownError
from npucall_server.settings.tenants import Tenants

_KEPT_PATTERNS = 1024


def of_claim(tenants: Tenants, value: str) -> str:
    """The tenant of a claim's value. Raises TenantUnknownError."""
    found = [
        name for name, each in tenants.by_name.items() if any_matches(each.claims, value)
    ]  # fmt: skip
    return _only(found, f"the value {value!r} of the token's claim", "claims")


def of_certificate(tenants: Tenants, names: Sequence[str]) -> tuple[str, str]:
    """The tenant of a certificate with these names, and the first of them that belongs to it.

    Raises TenantUnknownError.
    """
    firsts = {
        tenant: next((name for name in names if _is_of(each.certificates, name)), None)
        for tenant, each in tenants.by_name.items()
    }
    found = {tenant: name for tenant, name in firsts.items() if name is not None}
    tenant = _only(list(found), f"the certificate with the names {list(names)}", "certificates")
    return tenant, found[tenant]


def _is_of(patterns: Iterable[str], name: str) -> bool:
    """A pattern of host names matches no address of mail and no URI, whatever they end with."""
    return any_matches([each for each in patterns if _kind(each) == _kind(name)], name)


def _kind(name: str) -> tuple[bool, bool]:
    return "@" in name, ":" in name


def of_user(tenants: Tenants, number: int, name: str) -> str:
    """The tenant of a user of this host. Raises TenantUnknownError."""
    found = [
        tenant
        for tenant, each in tenants.by_name.items()
        if number in each.users or name in each.users
    ]
    return _only(found, f"the user {name} ({number}) of the server's host", "users")


def of_token(tenants: Tenants, tenant: str) -> str:
    """The tenant that a token names, if there is one. Raises TenantUnknownError."""
    found = [tenant] if tenant in tenants.by_name else []
    return _only(found, "the token", "tables")


def any_matches(patterns: Iterable[str], text: str) -> bool:
    """Whether a pattern matches the whole text. ``*`` matches any text; nothing else is special."""
    return any(_compiled(pattern).fullmatch(text) is not None for pattern in patterns)


@lru_cache(_KEPT_PATTERNS)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _only(found: Sequence[str], who: str, where: str) -> str:
    """The only tenant found. Several are an error, so that none is charged by chance."""
    if len(found) == 1:
        return found[0]
    count = f"{len(found)} tenants, but has to belong to one," if found else "no tenant"
    raise TenantUnknownError(
        f"{who} belongs to {count} of this server; ask its administrator, who says in the settings "
        f"(tenants, {where}) who belongs to which",
        fault="tenant",
    )
