"""Credentials for users of this host: of who was seen on the side socket, for the calls it makes.

A gRPC server is not told whose process a caller on a Unix socket or on loopback is. The side socket
is, and hands out what calls then carry.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import pwd
import secrets
import time
from typing import NamedTuple

from npucall_server.access.refusals import invalid

PREFIX = "npl_"
SECONDS = 600.0
"""For which a credential is good."""
_KEY_BYTES = 32
_MAC_BYTES = 32


class LocalUser(NamedTuple):
    """A user of this host."""

    number: int
    name: str
    """The number, where it has no name."""
    expires: float
    """Of the credential: seconds since 1970."""


def user(number: int, expires: float) -> LocalUser:
    """The user of that number."""
    try:
        return LocalUser(number, pwd.getpwuid(number).pw_name, expires)
    except KeyError:
        return LocalUser(number, str(number), expires)


class LocalUsers:
    """Makes credentials and knows them again. They are good for this process alone.

    Nothing is kept of them: each says its user and its end, under a key that is made at the start.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)

    def credential(self, number: int) -> str:
        """A token for a user, good for ``SECONDS``."""
        said = f"{number}:{time.time() + SECONDS:.3f}".encode()
        return _token(self._mac(said) + said)

    def known(self, token: str) -> LocalUser:
        """Whose token it is, expired or not. Raises CredentialInvalidError."""
        text = token.removeprefix(PREFIX)
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        mac, said = data[:_MAC_BYTES], data[_MAC_BYTES:]
        is_ours = hmac.compare_digest(mac, self._mac(said))
        if not is_ours or token != _token(data):  # of several spellings one is good
            raise invalid(
                "unknown",
                "this run of the server did not make the local user's credential; ask the side "
                "socket (shared_memory) for a new one",
            )
        number, end = said.split(b":")
        return user(int(number), float(end))

    def _mac(self, said: bytes) -> bytes:
        return hmac.digest(self._key, said, "sha256")


def _token(data: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(data).decode().rstrip("=")
