"""Public keys of an issuer of tokens (JWKS), from a file or an address. No call waits for them."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt

from npucall.environment.watched_file import WatchedFile
from npucall_server.settings.issuers import checked_url
from npucall_server.telemetry.log import Log

BETWEEN_SECONDS = 60.0
"""The shortest time between two requests to an address, whatever tokens come."""
REFRESH_SECONDS = 900.0
"""Time between two requests while no token needs another key. So an issuer's old keys go too."""
_FIRST_SECONDS = 5.0
"""How long a starting server waits for keys."""
_ANSWER_SECONDS = 10.0
_LARGEST = 2**20
"""The longest answer, in bytes."""
_DISCOVERY = "/.well-known/openid-configuration"


class Keys:
    """Public keys by their names (``kid``), as they were read last. Safe in several threads."""

    def __init__(self) -> None:
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._has_changed = False

    def find(self, name: str | None) -> jwt.PyJWK | None:
        """The key of that name; without a name, the only key. None if there is no such key."""
        keys = self._keys
        if name is None and len(keys) == 1:
            return next(iter(keys.values()))
        return keys.get(name or "")

    def take(self, document: bytes) -> None:
        """Uses the keys of a document from now on. Raises ValueError if it has none."""
        self._keys = parsed(document)
        self._has_changed = True

    def look(self) -> bool:
        """Whether the keys have changed since the last look."""
        changed, self._has_changed = self._has_changed, False
        return changed

    def stop(self) -> None:
        """Stops asking for keys."""


class FileKeys(Keys):
    """The keys in a file, read again when it changes.

    Raises OSError and ValueError if the first read fails.
    """

    def __init__(self, path: Path, log: Log) -> None:
        super().__init__()
        self._file, self._log = WatchedFile(path), log
        self.take(self._file.changed() or b"")

    def look(self) -> bool:
        try:
            if (document := self._file.changed()) is not None:
                self.take(document)
        except (OSError, ValueError) as error:
            _note(self._log, str(self._file.path), error)
        return super().look()


class FetchedKeys(Keys):
    """The keys at an address. A thread asks for them regularly, and when a token has another key.

    ``find`` of an unknown key makes the thread ask, at most once a minute; the call does not wait.
    """

    def __init__(self, address: str, issuer: str, log: Log) -> None:
        super().__init__()
        self._address, self._issuer, self._log = address, issuer, log
        self._wanted, self._stopped = threading.Event(), threading.Event()
        self._asked = threading.Event()
        threading.Thread(target=self._serve, name="npucall-keys", daemon=True).start()
        self._asked.wait(_FIRST_SECONDS)

    def find(self, name: str | None) -> jwt.PyJWK | None:
        key = super().find(name)
        if key is None:
            self._wanted.set()
        return key

    def stop(self) -> None:
        self._stopped.set()
        self._wanted.set()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            self._wanted.clear()
            asked = time.monotonic()
            self._ask()
            self._asked.set()
            self._wanted.wait(REFRESH_SECONDS)
            self._stopped.wait(max(asked + BETWEEN_SECONDS - time.monotonic(), 0))

    def _ask(self) -> None:
        try:
            self.take(_get(self._address or self._discovered()))
        except Exception as error:  # noqa: BLE001  # whatever the address answers, the thread asks again
            _note(self._log, self._address or self._issuer, error)

    def _discovered(self) -> str:
        """Where the issuer says that its keys are. Raises ValueError."""
        document = json.loads(_get(self._issuer.rstrip("/") + _DISCOVERY))
        if document.get("issuer") != self._issuer:
            raise ValueError(
                f"oidc_issuer: expected the name that the issuer gives itself in its "
                f"configuration, {document.get('issuer')!r}, found {self._issuer}"
            )
        return checked_url(document["jwks_uri"])


def parsed(document: bytes) -> dict[str, jwt.PyJWK]:
    """The public keys for signatures, by name. Raises ValueError if there are none."""
    try:
        entries = json.loads(document)["keys"]
        keys = {entry.get("kid", ""): _key(entry) for entry in entries if _signs(entry)}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"expected a JSON Web Key Set, found none: {error!r}") from error
    found = {name: key for name, key in keys.items() if key is not None}
    if not found:
        raise ValueError("expected public keys in a JSON Web Key Set, found none")
    return found


def _signs(entry: Mapping[str, Any]) -> bool:
    return entry.get("kty") in ("RSA", "EC", "OKP") and entry.get("use", "sig") == "sig"


def _key(entry: dict[str, Any]) -> jwt.PyJWK | None:
    """The public key; None for a kind that PyJWT does not know."""
    try:
        return jwt.PyJWK.from_dict(entry)
    except jwt.PyJWTError:
        return None


def _get(address: str) -> bytes:
    with _OPENER.open(address, timeout=_ANSWER_SECONDS) as answer:
        data: bytes = answer.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"expected an answer of at most {_LARGEST} bytes, found more")
    return data


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: keys come only from the address in the settings."""

    def redirect_request(self, *_: object) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _note(log: Log, where: str, error: Exception) -> None:
    log.event("warning", message=f"oidc_keys: {where}: {error}; the keys stay as they were")
