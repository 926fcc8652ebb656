"""Keys of reservations. A holder shows its key, and a restarted server still accepts it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple

from npucall_server.access.identity import Identity, KnownBy

_MOST_CHARACTERS = 128
_NONCE_BYTES = 8
_MILLISECONDS = 1000


class Term(NamedTuple):
    """From when to when a reservation was granted, in seconds since 1970."""

    start: float
    end: float


class ReservationKeys:
    """Makes keys of reservations of one device, and reads them.

    A key is ``START.END.NONCE.SIGNATURE``: two times in milliseconds since 1970, and an HMAC-SHA256
    over them, the holder and the device. Without ``secret``, keys are only good until the process
    ends.
    """

    def __init__(self, secret: str | None, device: str) -> None:
        self.outlive_the_process = secret is not None
        self._secret = secret.encode() if secret is not None else secrets.token_bytes(32)
        self._device = device

    def make(self, holder: Identity, term: Term) -> str:
        """A new key."""
        start, end = (round(seconds * _MILLISECONDS) for seconds in term)
        claim = f"{start}.{end}.{secrets.token_hex(_NONCE_BYTES)}"
        return f"{claim}.{self._signature(claim, holder)}"

    def read(self, key: str, holder: Identity) -> Term | None:
        """The term in a key, if this server made the key for that holder; else None."""
        if len(key) > _MOST_CHARACTERS or not key.isascii():
            return None
        claim, _, signature = key.rpartition(".")
        if not hmac.compare_digest(signature, self._signature(claim, holder)):
            return None
        start, end, _ = claim.split(".")
        return Term(int(start) / _MILLISECONDS, int(end) / _MILLISECONDS)

    def _signature(self, claim: str, holder: Identity) -> str:
        fields = (claim, person_of(holder), self._device)
        message = b"".join(len(field).to_bytes(4) + field for field in map(str.encode, fields))
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two keys are the same. The time that it takes does not tell how much is the same."""
    return hmac.compare_digest(one.encode(), other.encode())


def person_of(holder: Identity) -> str:
    """The person that a key is for.

    Empty if nothing proved who it is: then anybody may use the key.
    """
    return "" if holder.known_by is KnownBy.NOTHING else holder.person
