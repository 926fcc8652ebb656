"""The names in a caller's certificate, and when it expires. The connection has proved both."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from cryptography import x509

from npucall_server.access.guard import NAMES, PEM, ProvedPeer

_KEPT = 1024
_LOOK_SECONDS = 5.0


class Certificate(NamedTuple):
    """What a certificate says of its caller."""

    names: tuple[str, ...]
    """Subject alternative names, in the certificate's order. The common name does not count."""
    expires: float
    """Seconds since 1970."""


class ClientCertificates:
    """The certificates of connections. Each is read again after a few seconds.

    gRPC takes 6 us to give a whole certificate and 0.3 us to give its names
    [src:grpc-credentials]. So certificates are kept, by port and names. Another connection may
    use the same port soon after, so they are kept for a short time only.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[float, Certificate]] = {}

    def of(self, peer: str, connection: ProvedPeer) -> Certificate | None:
        """The certificate of a call's connection; None if it has none."""
        names = connection.peer_identities()
        if not names:
            return None
        key = (peer, *names)
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now < kept[0]:
            return kept[1]
        certificate = _certificate(connection.auth_context())
        if len(self._kept) >= _KEPT:
            self._kept = {}
        self._kept[key] = now + _LOOK_SECONDS, certificate
        return certificate


def _certificate(told: Mapping[str, Iterable[bytes]]) -> Certificate:
    names = tuple(name.decode(errors="replace") for name in told.get(NAMES, ()))
    (pem,) = told[PEM]
    return Certificate(names, _end(pem))


@lru_cache(_KEPT)
def _end(pem: bytes) -> float:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
