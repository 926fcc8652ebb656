"""The certificates of the server, read again when their files change."""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from npucall.environment.watched_file import WatchedFile
from npucall_server.settings.addresses import Security
from npucall_server.telemetry.log import Log

_LOOKS = 3
"""How often to read files that change meanwhile. After that the next connection reads them."""


_HANDOVER_SECONDS = 0.2
"""gRPC frees what it made of the old files when it gets the new ones, though a connection that it
asked for just before may be about to use it (SIGSEGV of 1.85.1, once in a thousand changes under
load). It asks under a lock, so an earlier connection has this time."""


class CertificateError(Exception):
    """The files are not a certificate and its key, or cannot be read."""


class _Contents(NamedTuple):
    """What the files say at one time."""

    certificate: bytes
    key: bytes
    client_ca: bytes


class Certificates:
    """A certificate, its key, and whose clients are let in, for the addresses of one server.

    Each new connection gets the current files; open connections stay. While the files do not fit
    each other, such as when only one of them has been written, the last good ones are used, and the
    log says so once. Raises CertificateError if the files have never been good.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None, log: Log) -> None:
        self._certificate, self._key = WatchedFile(certificate), WatchedFile(key)
        self._client_ca = None if client_ca is None else WatchedFile(client_ca)
        self._log = log
        self._lock = threading.Lock()
        self._pending = True
        """Whether the files have changed and have not been good since."""
        self._told = ""
        self._good = _Contents(b"", b"", b"")
        self._contexts: dict[Security, ssl.SSLContext] = {}
        """Made of what is good, for addresses without gRPC."""
        self._read()

    def credentials(self, security: Security) -> grpc.ServerCredentials:
        """What gRPC needs for an address."""
        given = self._good

        def fetch() -> Any:  # None for no change, which the stubs do not know
            nonlocal given
            now = self.current()
            if now == given:
                return None
            time.sleep(_HANDOVER_SECONDS)
            given = now
            return _configuration(now, security)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given, security), fetch, security is Security.MTLS
        )

    def current(self) -> _Contents:
        """What is good now; gRPC asks before every handshake."""
        with self._lock:
            before = self._good
            try:
                self._read()
            except CertificateError as error:
                self._tell(str(error))
            else:
                self._told = ""
                if self._good != before:
                    self._log.event("certificates", certificate=str(self._certificate.path))
            return self._good

    def context(self, security: Security) -> ssl.SSLContext:
        """For a new connection without gRPC."""
        self.current()
        return self._contexts[security]

    def _read(self) -> None:
        """Takes what the files say, if that is good and other than before."""
        for _ in range(_LOOKS):
            self._pending |= self._has_changed()
            if not self._pending:
                return
            contexts = self._checked()
            if not self._has_changed():  # so what was checked is what was read
                self._contexts = contexts
                ca = b"" if self._client_ca is None else self._client_ca.content
                self._good = _Contents(self._certificate.content, self._key.content, ca)
                self._pending = False
                return

    def _has_changed(self) -> bool:
        files = [each for each in (self._certificate, self._key, self._client_ca) if each]
        try:
            return any([file.changed() is not None for file in files])  # noqa: C419  # look at all
        except OSError as error:
            self._pending = True
            raise CertificateError(
                f"expected a file that the server can read: {error}{_who_may(error)}"
            ) from error

    def _checked(self) -> dict[Security, ssl.SSLContext]:
        """Raises CertificateError where the key is not the certificate's, or there is none."""
        contexts = {Security.TLS: self._with_certificate()}
        if self._client_ca is None:
            return contexts
        context = self._with_certificate()
        try:
            context.load_verify_locations(self._client_ca.path)
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"expected certificates in tls_client_ca {self._client_ca.path}, found: {error}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
        return {**contexts, Security.MTLS: context}

    def _with_certificate(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate, key = self._certificate.path, self._key.path
        try:
            context.load_cert_chain(certificate, key, password="")  # gRPC takes none
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"expected a certificate in tls_certificate {certificate} and its key, not "
                f"encrypted, in tls_key {key}, found: {error}"
            ) from error
        return context

    def _tell(self, fault: str) -> None:
        if fault != self._told:
            self._log.event("warning", message=f"{fault}; the server keeps the old certificate")
        self._told = fault


def _who_may(error: OSError) -> str:
    """What to do about a file that this user may not read."""
    if not isinstance(error, PermissionError):
        return ""
    user, group = os.geteuid(), os.getegid()
    return (
        f"; the server runs as the user {user} of the group {group}: give it the file and its "
        f"folders (chgrp {group}, mode 640, folders 750)"
    )


def _configuration(contents: _Contents, security: Security) -> grpc.ServerCertificateConfiguration:
    pair = (contents.key, contents.certificate)
    roots = contents.client_ca if security is Security.MTLS else None
    configure: Callable[..., grpc.ServerCertificateConfiguration]
    configure = grpc.ssl_server_certificate_configuration
    return configure([pair], root_certificates=roots)
