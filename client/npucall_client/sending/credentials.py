"""The token in each call that tells the server who calls; renewed before it ends. No gRPC.

This module never waits for a server's answer to a call, so that every sender may use it.
"""

from __future__ import annotations

import base64
import json
import math
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import urlsplit

from npucall.errors import (
    CredentialExpiredError,
    CredentialMissingError,
    DeadlineError,
    InternalError,
    SharedMemoryError,
    UnauthenticatedError,
)
from npucall.wire.headers import MOST_CREDENTIAL_BYTES
from npucall_client.sending.proxy import is_local, way_to
from npucall_client.shared import side_socket

if TYPE_CHECKING:
    from collections.abc import Callable

    from npucall_client.settings import ClientSettings

_SOONEST_SECONDS = 60.0
_SHARE_LEFT = 0.2
"""A credential is renewed when this share of its life is left, but at most a minute."""
_AGAIN_SECONDS = 1.0
"""Time between two looks at a file, and after a failed attempt to get a new credential."""
_ANSWER_SECONDS = 10.0
"""How long to wait for a URL, or for the server's side socket."""
_LONGEST_ANSWER = 2**16
_JWT_PARTS = 3


class TimedCredential(NamedTuple):
    """A credential, as text for the metadata; times in seconds since 1970."""

    authorization: str
    ends: float = math.inf
    """When it ends, as far as is known."""
    renew: float = math.inf
    """When to ask for a new one."""

    @classmethod
    def until(cls, authorization: str, ends: float) -> TimedCredential:
        """A credential that ends at ``ends`` and is renewed shortly before."""
        left = ends - time.time()
        if not 0 < left < math.inf:  # no end, or the clocks differ: the server will refuse it
            return cls(authorization)
        return cls(authorization, ends, ends - min(_SOONEST_SECONDS, left * _SHARE_LEFT))


class CredentialSource(Protocol):
    """Where credentials come from."""

    def fetch(self) -> TimedCredential:
        """The current credential. Raises UnauthenticatedError if there is none."""

    def helps(self, error: UnauthenticatedError) -> bool:
        """Whether there may be another credential after this error of the server."""


class ClientCredential:
    """The credential of a client. Safe to use from several threads; one of them asks at a time.

    ``source``: None if the settings name none. Then a server of this host (``is_local``) may name a
    socket at which it gives a credential to each user, or know callers by other means.
    """

    def __init__(
        self, source: CredentialSource | None, *, is_local: bool, socket: str = ""
    ) -> None:
        self._source = source
        self._is_local = is_local
        self._socket = socket
        """The path of the server's side socket, if it differs from the one that the server says."""
        self._held: TimedCredential | None = None
        self._lock = threading.Lock()

    def at_hand(self) -> str | None:
        """The metadata of a call: empty if it needs none, None if the client has to ask first."""
        held = self._held
        if held is not None and time.time() < held.renew:
            return held.authorization
        return "" if self._source is None else None

    def authorization(self) -> str:
        """The metadata of a call. If it is not at hand, asks for it, which may take seconds.

        Raises UnauthenticatedError if there is no valid credential.
        """
        known, held = self.at_hand(), self._held
        if known is not None or self._source is None:
            return known or ""
        return self._renewed(self._source, held)

    def seconds_left(self) -> float | None:
        """Seconds until it is renewed, at least one; None if it never is."""
        held = self._held
        if held is None or held.renew == math.inf:
            return None
        return max(_AGAIN_SECONDS, held.renew - time.time())

    def another(self, error: UnauthenticatedError, sent: str) -> bool:
        """Whether there is a credential other than ``sent``, which was refused with this error.

        Raises UnauthenticatedError if the server's side socket says why there is none.
        """
        with self._lock:
            if self._held is not None and self._held.authorization != sent:
                return True
            source = self._source_behind(error)
            if source is None or not source.helps(error):
                return False
            try:
                held = source.fetch()
            except (SharedMemoryError, DeadlineError, InternalError):
                return False
            self._source, self._held = source, held
            return held.authorization != sent

    def _renewed(self, source: CredentialSource, held: TimedCredential | None) -> str:
        is_good = held is not None and time.time() < held.ends
        if not self._lock.acquire(blocking=not is_good):
            return held.authorization if held else ""  # another thread asks
        try:
            if self._held is not held and self._held is not None:
                return self._held.authorization
            try:
                self._held = source.fetch()
            except (UnauthenticatedError, SharedMemoryError, DeadlineError, InternalError):
                if held is None or not is_good:
                    raise
                self._held = held._replace(renew=time.time() + _AGAIN_SECONDS)
            return self._held.authorization
        finally:
            self._lock.release()

    def _source_behind(self, error: UnauthenticatedError) -> CredentialSource | None:
        """The source; if there is none, the socket that the server's error names."""
        told = error.details.get("credential_socket", "")
        is_of_user = self._source is None or isinstance(self._source, _LocalUser)
        if told and is_of_user and self._is_local:
            return _LocalUser(self._socket or told)
        return self._source


def credential_of(settings: ClientSettings) -> ClientCredential:
    """The credential of the settings. Raises ValueError if a token would travel unencrypted.

    No more than one of ``token``, ``token_file`` and ``token_url`` may be set.
    """
    named = [name for name in ("token", "token_file", "token_url") if getattr(settings, name)]
    if len(named) > 1:
        raise ValueError(
            f"{named[1]}: expected only one of token, token_file and token_url, found {named[0]} "
            "too; unset one"
        )
    way = way_to(settings)
    local = is_local(settings.target) and way.is_straight
    if named and not (local or settings.encrypts):
        raise ValueError(
            f"{named[0]}: expected TLS to {settings.target}{way.told}, found none; the client "
            "sends a token to another machine only encrypted: set tls or ca (NPUCALL_TLS, "
            "NPUCALL_CA)"
        )
    source = _source_of(settings)
    return ClientCredential(source, is_local=local, socket=settings.shared_memory_socket)


def none() -> ClientCredential:
    """That of a client which shows none, whatever the server asks for."""
    return ClientCredential(None, is_local=False)


def _source_of(settings: ClientSettings) -> CredentialSource | None:
    if callable(settings.token):
        return _Function(settings.token)
    if settings.token:
        return _Given(settings.token)
    if settings.token_file:
        return _File(Path(settings.token_file))
    if settings.token_url:
        return _Url(settings.token_url, settings.token_url_bearer)
    return None


class _Given:
    """A token that never changes."""

    def __init__(self, token: str) -> None:
        self._held = TimedCredential(_bearer("token", token))

    def fetch(self) -> TimedCredential:
        return self._held

    def helps(self, error: UnauthenticatedError) -> bool:
        del error
        return False


class _Function:
    """The token that a function of the caller returns."""

    def __init__(self, function: Callable[[], str]) -> None:
        self._function = function

    def fetch(self) -> TimedCredential:
        try:
            token = self._function()
        except Exception as error:
            raise CredentialMissingError(
                f"token: expected the function to return a token, found {type(error).__name__}: "
                f"{error}"
            ) from error
        return TimedCredential.until(_bearer("token", token), _end_of(token))

    def helps(self, error: UnauthenticatedError) -> bool:
        return isinstance(error, CredentialExpiredError)


class _File:
    """A file that another program rewrites, such as Kubernetes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fetch(self) -> TimedCredential:
        try:
            token = self._path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialMissingError(
                f"token_file: expected a file with a token, found: {error}"
            ) from error
        ends = _end_of(token)
        now = time.time()
        ends = ends if ends > now else math.inf
        return TimedCredential(_bearer("token_file", token), ends, now + _AGAIN_SECONDS)

    def helps(self, error: UnauthenticatedError) -> bool:
        del error
        return True


class _Url:
    """The token from the URL of a CI system, which returns JSON with a ``value``."""

    def __init__(self, url: str, bearer: str) -> None:
        address = urlsplit(url)
        near = address.scheme == "http" and is_local(f"{address.hostname}:0")
        if address.scheme != "https" and not near:
            raise ValueError(f"token_url: expected https://..., found {address.scheme}://...")
        self._url, self._bearer = url, bearer

    def fetch(self) -> TimedCredential:
        import urllib.request  # noqa: PLC0415  # few need it, and it costs every start

        request = urllib.request.Request(self._url)  # noqa: S310  # its scheme is known
        request.add_header("Accept", "application/json")
        if self._bearer:  # for this host only: a redirection must not give it to another
            request.add_unredirected_header("Authorization", f"bearer {self._bearer}")
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:  # noqa: S310
                token = json.loads(answer.read(_LONGEST_ANSWER))["value"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CredentialMissingError(
                "token_url: expected JSON whose `value` is a token, found "
                f"{type(error).__name__}: {error}"
            ) from error
        return TimedCredential.until(_bearer("token_url", token), _end_of(token))

    def helps(self, error: UnauthenticatedError) -> bool:
        return isinstance(error, CredentialExpiredError)


class _LocalUser:
    """The credential that a server's side socket gives each user of its host."""

    def __init__(self, path: str) -> None:
        self._path = path

    def fetch(self) -> TimedCredential:
        authorization, seconds = side_socket.ask_credential(self._path, _ANSWER_SECONDS)
        return TimedCredential.until(authorization, time.time() + seconds)

    def helps(self, error: UnauthenticatedError) -> bool:
        del error  # any error: a server that was started again knows no earlier credential
        return True


def _bearer(setting: str, token: object) -> str:
    """The metadata with a token; errors never show the token."""
    if not isinstance(token, str) or not token:
        found = "an empty one" if token == "" else type(token).__name__
        raise CredentialMissingError(f"{setting}: expected a token, found {found}")
    if not all("!" <= character <= "~" for character in token):
        raise CredentialMissingError(
            f"{setting}: expected a token of letters, digits and signs, found other characters"
        )
    if len(token) > (most := MOST_CREDENTIAL_BYTES - len("Bearer ")):
        raise CredentialMissingError(
            f"{setting}: expected a token of at most {most:,} bytes, found one of {len(token):,}; "
            "ask its issuer for fewer claims"
        )
    return f"Bearer {token}"


def _end_of(token: str) -> float:
    """When a token ends, if it is a JWT that says so; only the server can verify it."""
    parts = token.split(".") if isinstance(token, str) else []
    if len(parts) != _JWT_PARTS:
        return math.inf
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return math.inf
