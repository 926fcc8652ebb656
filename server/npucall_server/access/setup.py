"""Makes everything by which a server knows its callers, and keeps it up to date."""

from __future__ import annotations

import threading
import tomllib
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from npucall.environment.watched_file import WatchedFile
from npucall_server.access.guard import Guard, OpenGuard
from npucall_server.access.local_users import LocalUsers
from npucall_server.access.tenants_guard import TenantsGuard
from npucall_server.access.tokens import TokenFile
from npucall_server.settings.faults import sentences
from npucall_server.settings.tenants import Tenant, Tenants, TenantTables

if TYPE_CHECKING:
    from pathlib import Path

    from npucall_server.access.certificates import ClientCertificates
    from npucall_server.access.oidc import Issuer
    from npucall_server.settings.listener import ListenerSettings
    from npucall_server.telemetry.log import Log

_TABLES: TypeAdapter[dict[str, Tenant]] = TypeAdapter(TenantTables)


def tenants_in(content: bytes) -> dict[str, Tenant]:
    """The tenants of a settings file. Raises a ValueError that says what is wrong."""
    try:
        tables = tomllib.loads(content.decode()).get("tenants", {})
        tenants = _TABLES.validate_python(tables)
    except ValidationError as error:
        raise ValueError(sentences(error, "tenants", Tenant.model_fields)) from error
    if not tenants:
        raise ValueError("tenants: expected at least one table [tenants.NAME], found none")
    return tenants


class Access:
    """Who may call a server: its guard, its tenants, and the files that say so.

    Somebody has to call ``look`` every second. Raises ValueError and OSError if a file cannot be
    used at the start.
    """

    def __init__(
        self, settings: ListenerSettings, log: Log, side_socket: Path | None = None
    ) -> None:
        """``side_socket``: where the server hands out shared memory, and local credentials."""
        self._log, self._side_socket = log, side_socket
        self.tenants = Tenants(settings.tenants)
        knows_users = side_socket is not None or settings.knows_local_users
        self.users = LocalUsers() if settings.tenants and knows_users else None
        self._tokens = TokenFile(settings.token_hashes) if settings.token_hashes else None
        self._issuer = _issuer(settings, log)
        self._tables = _tables(settings)
        self._looking = threading.Lock()
        self._said = ""
        self.tenants_guard = self._guarding(settings) if settings.tenants else None
        """None if anybody may call."""
        self._say_faults()

    @property
    def guard(self) -> Guard:
        """Finds out who callers are."""
        return self.tenants_guard or OpenGuard()

    def look(self) -> None:
        """Reads changed files again. If a file cannot be read, its last contents stay in use."""
        if self.tenants_guard is None:
            return
        with self._looking:
            changes = [self._look_at_tenants(), self._look_at_tokens(), self._look_at_keys()]
        if any(changes):
            self.tenants_guard.forget()

    def close(self) -> None:
        """Stops asking for keys."""
        if self._issuer is not None:
            self._issuer.keys.stop()

    def _guarding(self, settings: ListenerSettings) -> TenantsGuard:
        path = self._side_socket
        return TenantsGuard(
            self.tenants,
            token_file=self._tokens,
            issuer=self._issuer,
            users=self.users,
            certificates=_certificates(settings),
            credential_socket=str(path.absolute()) if path else "",
        )

    def _look_at_tenants(self) -> bool:
        if self._tables is None:
            return False
        try:
            content = self._tables.changed()
            if content is None:
                return False
            self.tenants.replace(tenants_in(content))
        except (OSError, ValueError) as error:
            self._warn(f"tenants: {self._tables.path}: {error}; the server keeps the old tenants")
            return False
        self._log.event("tenants", message=f"read again: {', '.join(self.tenants.by_name)}")
        return True

    def _look_at_tokens(self) -> bool:
        if self._tokens is None:
            return False
        try:
            changed = self._tokens.look()
        except OSError as error:
            self._warn(
                f"token_hashes: {error}; the server keeps the old tokens: empty the file to revoke "
                "them"
            )
            return False
        if changed:
            self._log.event("tokens", message=f"read again: {len(self._tokens.by_hash)}")
            self._say_faults()
        return changed

    def _look_at_keys(self) -> bool:
        return self._issuer is not None and self._issuer.keys.look()

    def _say_faults(self) -> None:
        for fault in self._tokens.faults if self._tokens is not None else ():
            self._warn(f"token_hashes: {fault}")

    def _warn(self, message: str) -> None:
        if message != self._said:  # a missing file would be logged every second
            self._log.event("warning", message=message)
        self._said = message


def _tables(settings: ListenerSettings) -> WatchedFile | None:
    """The file of the tenants; None if any of them come from another source."""
    if settings.config is None or not settings.tenants:
        return None
    file = WatchedFile(settings.config)
    try:
        same = tenants_in(file.changed() or b"") == settings.tenants
    except ValueError:
        same = False
    return file if same else None


def _issuer(settings: ListenerSettings, log: Log) -> Issuer | None:
    if settings.oidc_issuer is None:
        return None
    from npucall_server.access.oidc import Issuer  # noqa: PLC0415  # needs the extra auth

    return Issuer(settings, log)


def _certificates(settings: ListenerSettings) -> ClientCertificates | None:
    if settings.tls_client_ca is None:
        return None
    from npucall_server.access.certificates import ClientCertificates  # noqa: PLC0415  # as above

    return ClientCertificates()
