"""Names and end of a caller's certificate, as its connection proved it."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import grpc

_KEPT = 1024
_LOOK_SECONDS = 5.0
_NAMES, _PEM = "x509_subject_alternative_name", "x509_pem_cert"


class Certificate(NamedTuple):
    """What a certificate says of its caller."""

    names: tuple[str, ...]
    """Subject alternative names, in its order. Its common name is none."""
    expires: float
    """Seconds since 1970."""


class Certificates:
    """Certificates of connections; each is looked at again after a while.

    gRPC takes 6 us to tell all of a certificate and 0.3 us to tell its names
    [src:grpc-credentials]. A port may be used by another connection soon after, so what is kept
    belongs to port and names, and not for long.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[float, Certificate]] = {}

    def of(self, peer: str, context: grpc.ServicerContext) -> Certificate | None:
        """That of a call's connection; None where it has none."""
        names = context.peer_identities()
        if not names:
            return None
        key = (peer, *names)
        now = time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now < kept[0]:
            return kept[1]
        certificate = _certificate(context.auth_context())  # type: ignore[arg-type]  # of each a list
        if len(self._kept) >= _KEPT:
            self._kept = {}
        self._kept[key] = now + _LOOK_SECONDS, certificate
        return certificate


def _certificate(told: Mapping[str, Iterable[bytes]]) -> Certificate:
    names = tuple(name.decode(errors="replace") for name in told.get(_NAMES, ()))
    (pem,) = told[_PEM]
    return Certificate(names, _end(pem))


@lru_cache(_KEPT)
def _end(pem: bytes) -> float:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
