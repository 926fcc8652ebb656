"""Authorities and certificates of tests, in files as settings name them."""

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

HOSTS = "127.0.0.1", "localhost"
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in two files."""

    certificate: Path
    key: Path

    @property
    def flags(self) -> tuple[str, str]:
        return f"--tls-certificate={self.certificate}", f"--tls-key={self.key}"


class Authority:
    """A certificate authority whose file is ``ca``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(self.ca)

    def server(self, name: str = "server", hosts: tuple[str, ...] = HOSTS) -> Pair:
        """Of a server: in no client's place."""
        return self._issue(name, hosts, [SERVER])

    def member(self, name: str, hosts: tuple[str, ...]) -> Pair:
        """Of a server that announces itself: in both places."""
        return self._issue(name, hosts, [SERVER, CLIENT])

    def client(self, name: str, until: datetime | None = None) -> Pair:
        """Of a client: in no server's place."""
        return self._issue(name, (name,), [CLIENT], until)

    def _issue(
        self,
        name: str,
        hosts: tuple[str, ...],
        usages: list[x509.ObjectIdentifier],
        until: datetime | None = None,
    ) -> Pair:
        """Files are put in their place, the certificate first."""
        issued = self._authority.issue_cert(*hosts, common_name=name, not_after=until)
        pem = _for_usages(self._authority, issued.cert_chain_pems[0].bytes(), usages)
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        for path, content in (
            (pair.certificate, pem),
            (pair.key, issued.private_key_pem.bytes()),
        ):
            draft = path.with_suffix(".draft")
            draft.write_bytes(content)
            os.replace(draft, path)  # noqa: PTH105
        return pair


def _for_usages(authority: trustme.CA, pem: bytes, usages: list[x509.ObjectIdentifier]) -> bytes:
    """The same certificate, good for these usages alone; those of trustme are good for both."""
    issued = x509.load_pem_x509_certificate(pem)
    builder = (
        x509.CertificateBuilder()
        .subject_name(issued.subject)
        .issuer_name(issued.issuer)
        .public_key(issued.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issued.not_valid_before_utc)
        .not_valid_after(issued.not_valid_after_utc)
    )
    for extension in issued.extensions:
        if isinstance(extension.value, x509.ExtendedKeyUsage):
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=True)
        else:
            builder = builder.add_extension(extension.value, extension.critical)
    key = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    certificate = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]  # an EC key
    return certificate.public_bytes(serialization.Encoding.PEM)
