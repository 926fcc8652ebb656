"""Credentials for users of this host: the side socket sees the user and gives it a credential.

A gRPC server cannot find out which user a caller on a Unix socket or on loopback is. The side
socket can. It hands out a credential, and the user's calls carry it.
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
"""How long a credential is good."""
_KEY_BYTES = 32
_MAC_BYTES = 32


class LocalUser(NamedTuple):
    """A user of this host."""

    number: int
    name: str
    """The user's number if it has no name."""
    expires: float
    """When the credential expires, in seconds since 1970."""


def user(number: int, expires: float) -> LocalUser:
    """The user of that number."""
    try:
        return LocalUser(number, pwd.getpwuid(number).pw_name, expires)
    except KeyError:
        return LocalUser(number, str(number), expires)


class LocalUsers:
    """Makes credentials and recognises them. They are good for this process only.

    The server keeps none of them. Each contains its user and its end, signed with a key that the
    process makes at its start.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(_KEY_BYTES)

    def credential(self, number: int) -> str:
        """A token for a user, good for ``SECONDS``."""
        said = f"{number}:{time.time() + SECONDS:.3f}".encode()
        return _token(self._mac(said) + said)

    def known(self, token: str) -> LocalUser:
        """The user of a token, expired or not. Raises CredentialInvalidError."""
        text = token.removeprefix(PREFIX)
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        mac, said = data[:_MAC_BYTES], data[_MAC_BYTES:]
        is_ours = hmac.compare_digest(mac, self._mac(said))
        if not is_ours or token != _token(data):  # only one spelling is good
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
