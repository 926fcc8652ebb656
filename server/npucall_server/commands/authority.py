"""A private certificate authority, which issues certificates for servers and clients.

Needs ``cryptography``, of the extra ``auth``.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
_EARLIER = timedelta(minutes=5)
"""A certificate begins this long before now, because clocks differ."""
_LONGEST_NAME = 64
"""The longest common name. Nobody compares it."""
_DNS = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_NO_USAGE = dict.fromkeys(
    (
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "encipher_only",
        "decipher_only",
    ),
    False,
)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Issues certificates, each good either for a server or for a client.

    The certificate of a server that announces itself is good for both.
    """

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate, self._key = certificate, key

    @classmethod
    def new(cls) -> Self:
        """A new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        name = _name("npucall certificate authority")
        builder = (
            _builder(name, name, key.public_key(), now, now + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=False, key_cert_sign=True, crl_sign=True, **_NO_USAGE
                ),
                critical=True,
            )
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def of(cls, issued: Issued) -> Self:
        """The authority with this certificate and key.

        Raises ValueError if they are no authority's.
        """
        certificate = x509.load_pem_x509_certificate(issued.certificate)
        key = serialization.load_pem_private_key(issued.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("expected a key of an elliptic curve, found another one")  # noqa: TRY004  # a wrong file, not a wrong type
        if key.public_key() != certificate.public_key():
            raise ValueError("expected the key of the certificate, found another one")
        return cls(certificate, key)

    @property
    def issued(self) -> Issued:
        """Its own certificate and key."""
        return _issued(self._certificate, self._key)

    def server(self, hosts: list[str], days: int, *, announces: bool = False) -> Issued:
        """A certificate for a server with these names and IP addresses. Raises ValueError.

        ``announces``: it is good for a client too, so that the server can announce itself.
        """
        names = [_host(host) for host in hosts]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if announces:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(hosts[0], names, usages, days)

    def client(self, name: str, days: int) -> Issued:
        """A certificate for a caller whose name is a DNS name or a URI. Raises ValueError."""
        names = [_client(name)]
        return self._issue(name, names, [ExtendedKeyUsageOID.CLIENT_AUTH], days)

    def _issue(
        self,
        name: str,
        names: list[x509.GeneralName],
        usages: list[x509.ObjectIdentifier],
        days: int,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        ends = min(now + timedelta(days=days), self._certificate.not_valid_after_utc)
        issuer = self._certificate.subject
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            _builder(_name(name), issuer, key.public_key(), now, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True, key_cert_sign=False, crl_sign=False, **_NO_USAGE
                ),
                critical=True,
            )
            .add_extension(x509.ExtendedKeyUsage(usages), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(authority, critical=False)
        )
        return _issued(builder.sign(self._key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_LONGEST_NAME])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return _dns("host", host)


def _client(name: str) -> x509.GeneralName:
    if "://" in name and name.isascii() and name.isprintable() and " " not in name:
        return x509.UniformResourceIdentifier(name)
    return _dns("client", name)


def _dns(what: str, name: str) -> x509.DNSName:
    if not _DNS.fullmatch(name):
        raise ValueError(
            f"{what}: expected a name of letters, digits, '.', '-' and '_', found {name!r}"
        )
    return x509.DNSName(name)
