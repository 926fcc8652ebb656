"""Ids of sessions: which server opened one, and a secret that nobody guesses.

``<place>-<instance>-<secret>``, all in hexadecimal. A restart changes the instance but not the
place. So a client learns whether it asks the wrong server, or one that was restarted.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Sequence
from hashlib import blake2b

from npucall.errors import HandleLostError, SessionUnknownError, WrongServerError

SECRET_BYTES = 16
_PLACE_BYTES = 4
_ID = re.compile(r"([0-9a-f]{8})-([0-9a-f]{1,32})-([0-9a-f]{32})")
_SEVERAL = ","


def place_of(device: str, address: str, server_id: str = "") -> str:
    """A server's name, which stays the same over restarts.

    It is made of its id, if it has one; else of its host and its address, if that has a port; else
    it is new.
    """
    if not server_id:
        is_any_port = address.endswith(":0")
        server_id = (
            secrets.token_hex(SECRET_BYTES) if is_any_port else f"{socket.gethostname()}\n{address}"
        )
    return blake2b(f"{server_id}\n{device}".encode(), digest_size=_PLACE_BYTES).hexdigest()


class SessionIds:
    """Makes ids, and reads those that callers send."""

    def __init__(self, place: str, instance: str, address: str = "") -> None:
        self._place, self._instance, self._address = place, instance, address

    def new(self) -> tuple[str, bytes]:
        """An id, and the secret in it."""
        secret = secrets.token_bytes(SECRET_BYTES)
        return f"{self._place}-{self._instance}-{secret.hex()}", secret

    def secret_in(self, text: str, handles: Sequence[bytes] = ()) -> bytes:
        """The secret of an id of this process.

        Raises SessionUnknownError if the text is no id, WrongServerError, and HandleLostError,
        which names ``handles``.
        """
        match = _ID.fullmatch(text)
        if match is None:
            raise unknown()
        place, instance, secret = match.groups()
        if place != self._place:
            raise WrongServerError(
                f"session: expected one of this server, which listens at {self._address}, found "
                "one that another server opened; send the call there, or open another session",
                server=place,
            )
        if instance != self._instance:
            raise HandleLostError(
                "the server has restarted since the session was opened, and its handles are gone; "
                f"open a session and fill them again ({self._instance} now, {instance} then)",
                instance=instance,
                handles=_SEVERAL.join(handle.hex() for handle in handles),
            )
        return bytes.fromhex(secret)


def unknown() -> SessionUnknownError:
    """The error for every session that is not the caller's. It is always the same."""
    return SessionUnknownError(
        "session: expected the id of a session of this caller in the metadata npucall-session, "
        "found no such session; open one"
    )
