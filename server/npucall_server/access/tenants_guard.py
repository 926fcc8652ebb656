"""The guard of a server with tenants: it knows every caller, or refuses it and says why."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from npucall.errors import CredentialMissingError, TenantUnknownError, UnauthenticatedError
from npucall.wire.status import AUTHORIZATION
from npucall_server.access import belonging, local_users, tokens
from npucall_server.access.identity import Identity, KnownBy
from npucall_server.access.refusals import expired, invalid, is_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npucall_server.access.certificates import Certificate, ClientCertificates
    from npucall_server.access.guard import ProvedPeer
    from npucall_server.access.local_users import LocalUsers
    from npucall_server.access.oidc import Issuer
    from npucall_server.access.tokens import TokenFile
    from npucall_server.settings.tenants import Tenants

_KEPT = 4096
"""The most verified credentials that are kept. The oldest are forgotten first."""
_LOCAL = ("unix:", "ipv4:127.", "ipv6:[::1]", "ipv6:%5B::1%5D")
_BEARER = "bearer"
_LOCAL_USERS = "credentials of users of its host (settings shared_memory, and users of a tenant)"


class TenantsGuard:
    """Knows callers by certificates and tokens: of the server's file, an issuer, or a local user.

    If a call has a credential, the certificate of its connection does not count. The guard keeps
    the hash of each credential that it has verified, and each certificate, until that expires or a
    file changes.
    """

    asks = True

    def __init__(  # noqa: PLR0913  # each is a way to know callers
        self,
        tenants: Tenants,
        *,
        token_file: TokenFile | None = None,
        issuer: Issuer | None = None,
        users: LocalUsers | None = None,
        certificates: ClientCertificates | None = None,
        credential_socket: str = "",
    ) -> None:
        self.tenants = tenants
        self._token_file, self._issuer, self._users = token_file, issuer, users
        self._certificates = certificates
        self._credential_socket = credential_socket
        self._known: dict[bytes | Certificate, Identity] = {}
        """By hashes of credentials, and by certificates."""
        self._lock = threading.Lock()

    def identify(
        self, peer: str, metadata: Mapping[str, str | bytes], connection: ProvedPeer
    ) -> Identity:
        """Who calls. Raises UnauthenticatedError if that is not known."""
        authorization = metadata.get(AUTHORIZATION)
        if isinstance(authorization, str) and authorization:
            try:
                return self.identify_by(authorization)
            except UnauthenticatedError as error:
                if local_users.PREFIX in authorization:
                    self._tell_socket(error, peer)
                raise
        if self._certificates is not None:
            certificate = self._certificates.of(peer, connection)
            if certificate is not None:
                return self._by_certificate(certificate)
        missing = CredentialMissingError(
            "credential: expected a token or a client certificate, found none; this server "
            "answers only callers of its tenants"
        )
        self._tell_socket(missing, peer)
        raise missing

    def identify_by(self, authorization: str) -> Identity:
        """The caller of a credential, spelled as in metadata. Raises UnauthenticatedError."""
        key = hashlib.blake2b(authorization.encode(errors="surrogatepass")).digest()
        known = self._known
        identity = known.get(key)
        if identity is not None and time.time() < identity.expires:
            return identity
        return self._keep(known, key, self._verified(authorization))

    def renew(self, identity: Identity, authorization: str) -> Identity:
        """The same caller proves again who it is. Raises UnauthenticatedError."""
        renewed = self.identify_by(authorization)
        if renewed.person != identity.person:
            raise invalid(
                "person",
                f"expected another credential of {identity.person}, found one of {renewed.person}",
            )
        return renewed

    def identify_user(self, number: int) -> Identity:
        """The identity of a user that the side socket saw. Raises TenantUnknownError."""
        return self._by_user(local_users.user(number, time.time() + local_users.SECONDS))

    def credential_of(self, number: int) -> tuple[str, float]:
        """A credential for the calls of a user of this host, and for how many seconds it is good.

        Raises TenantUnknownError.
        """
        self.identify_user(number)
        users = self._users or _no_way(_LOCAL_USERS)
        return f"Bearer {users.credential(number)}", local_users.SECONDS

    def check(self, identity: Identity) -> None:
        """Raises UnauthenticatedError if the caller's credential has expired or been revoked."""
        if time.time() >= identity.expires:
            raise expired(f"the credential of {identity.person} has expired; get a new one")
        try:
            tenant = self._tenant_now(identity)
        except TenantUnknownError as error:
            raise invalid("revoked", f"{identity.person} no longer belongs to a tenant") from error
        if tenant != identity.tenant:
            raise invalid("revoked", f"the credential of {identity.person} was revoked")

    def forget(self) -> None:
        """Forgets all verified credentials: each is verified again when it is used."""
        self._known = {}

    def _tenant_now(self, identity: Identity) -> str:
        """The tenant that the caller's proof gives now; empty if it was revoked. May raise."""
        proof, tenants = identity.proved_by, self.tenants
        if identity.known_by is KnownBy.TOKEN:
            token = self._token_file.by_hash.get(proof) if self._token_file is not None else None
            if token is None or token.name != identity.name or time.time() >= token.expires:
                return ""
            return belonging.of_token(tenants, token.tenant)
        if identity.known_by is KnownBy.JWT:
            return belonging.of_claim(tenants, proof)
        if identity.known_by is KnownBy.CERTIFICATE:
            return belonging.of_certificate(tenants, [proof])[0]
        return belonging.of_user(tenants, int(proof), identity.name)

    def _verified(self, authorization: str) -> Identity:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != _BEARER or not token.isascii():
            raise invalid(
                "malformed",
                "expected 'Bearer' and a token in the metadata authorization, found something else",
            )
        if token.startswith(tokens.PREFIX):
            return self._by_token(token)
        if token.startswith(local_users.PREFIX):
            return self._by_local_token(token)
        if token.count(".") == 2:  # noqa: PLR2004  # header, claims, signature
            return self._by_jwt(token)
        raise invalid(
            "malformed",
            f"expected a token that begins with {tokens.PREFIX}, or a JSON Web Token, found "
            "something else",
        )

    def _by_token(self, text: str) -> Identity:
        file = self._token_file or _no_way("tokens of its own (setting token_hashes)")
        token = file.by_hash.get(tokens.hash_of(text))
        if token is None:
            raise invalid(
                "unknown",
                "this server does not know the token: somebody revoked it, or made it for another "
                "server (token_hashes)",
            )
        if time.time() >= token.expires:
            raise expired(f"the token expired at {token.end}; get a new one")
        tenant = belonging.of_token(self.tenants, token.tenant)
        role = token.role or self.tenants.of(tenant).role_of(token.name)
        return Identity(
            tenant, token.name, role, KnownBy.TOKEN, token.expires, proved_by=token.hash
        )

    def _by_local_token(self, text: str) -> Identity:
        users = self._users or _no_way(_LOCAL_USERS)
        user = users.known(text)
        if time.time() >= user.expires:
            raise expired(
                "the local user's credential has expired; ask the side socket for a new one"
            )
        return self._by_user(user)

    def _by_user(self, user: local_users.LocalUser) -> Identity:
        tenant = belonging.of_user(self.tenants, user.number, user.name)
        return self._identity(tenant, user.name, KnownBy.LOCAL_USER, user.expires, str(user.number))

    def _by_jwt(self, token: str) -> Identity:
        issuer = self._issuer or _no_way("tokens of an issuer (setting oidc_issuer)")
        claims = issuer.known(token)
        tenant = belonging.of_claim(self.tenants, claims.tenant)
        return self._identity(tenant, claims.name, KnownBy.JWT, claims.expires, claims.tenant)

    def _keep(
        self, known: dict[bytes | Certificate, Identity], key: bytes | Certificate, who: Identity
    ) -> Identity:
        with self._lock:  # if ``forget`` came meanwhile, this goes too
            while len(known) >= _KEPT:
                del known[next(iter(known))]
            known[key] = who
        return who

    def _by_certificate(self, certificate: Certificate) -> Identity:
        known = self._known
        identity = known.get(certificate)
        if identity is not None and time.time() < identity.expires:
            return identity
        return self._keep(known, certificate, self._certified(certificate))

    def _certified(self, certificate: Certificate) -> Identity:
        if time.time() >= certificate.expires:
            raise expired("the client's certificate has expired; get a new one")
        tenant, name = belonging.of_certificate(self.tenants, certificate.names)
        if not is_name(name):
            raise invalid(
                "certificate", "expected a name of printable characters in the certificate"
            )
        known = self._identity(tenant, name, KnownBy.CERTIFICATE, certificate.expires, name)
        return replace(known, names=certificate.names)

    def _identity(
        self, tenant: str, name: str, known_by: KnownBy, expires: float, proof: str
    ) -> Identity:
        role = self.tenants.of(tenant).role_of(name)
        return Identity(tenant, name, role, known_by, expires, proved_by=proof)

    def _tell_socket(self, error: UnauthenticatedError, peer: str) -> None:
        """Tells a caller of this host where to get a credential for its user."""
        if self._credential_socket and peer.startswith(_LOCAL):
            error.details["credential_socket"] = self._credential_socket


def _no_way(what: str) -> NoReturn:
    """Refuses a credential of a kind that this server does not accept."""
    raise invalid("unknown", f"this server does not accept {what}; use another kind")
