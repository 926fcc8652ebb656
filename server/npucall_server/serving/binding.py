"""Binds the addresses of a server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import grpc

from npucall_server.exits import ExitCode
from npucall_server.serving.tls import CertificateError, Certificates
from npucall_server.settings import addresses
from npucall_server.settings.addresses import Address, Security
from npucall_server.settings.listening import TransportSettings
from npucall_server.telemetry.log import Log


class BindError(Exception):
    """An address cannot be bound."""

    code = ExitCode.CANNOT_BIND


class SettingsError(BindError):
    """The settings give an address that cannot be bound, and no restart would fix that."""

    code = ExitCode.SETTINGS


def bind(
    server: grpc.Server, settings: TransportSettings, certificates: Certificates | None
) -> list[Address]:
    """Binds every address of ``listen``. Answers the addresses with the ports that they got."""
    return [_bind("listen", server, each, certificates) for each in settings.listens]


def bind_plain(setting: str, server: grpc.Server, where: str) -> Address:
    """Binds the address of another setting, which is not encrypted."""
    return _bind(setting, server, addresses.Address(where, Security.PLAIN), None)


def warnings(bound: list[Address], settings: TransportSettings) -> list[str]:
    """Warnings for an administrator who opened addresses beyond loopback on purpose."""
    said = []
    for address in bound:
        if addresses.is_loopback(address.where):
            continue
        if address.security is Security.PLAIN:
            said.append(
                f"everybody who reaches {address.where} can read and send calls: nothing is "
                "encrypted there"
            )
        elif address.security is Security.TLS and not settings.knows_tokens:
            said.append(
                f"everybody who reaches {address.where} can send calls: nobody proves there who "
                "they are"
            )
    return said


@contextmanager
def naming(setting: str, found: str) -> Iterator[None]:
    """Makes a BindError of what the system says about the address of a setting."""
    try:
        yield
    except OSError as error:
        raise BindError(f"{setting}: expected a free address, found {found}: {error}") from error


def check_path(setting: str, path: Path) -> None:
    """Raises SettingsError if no socket can be made at a path."""
    if fault := addresses.fault_of_path(path):
        raise SettingsError(f"{setting}: {fault}")


def certificates_of(settings: TransportSettings, log: Log) -> Certificates | None:
    """The server's certificates, if it has some. Raises SettingsError."""
    certificate, key = settings.tls_certificate, settings.tls_key
    if certificate is None or key is None:
        return None
    try:
        return Certificates(certificate, key, settings.tls_client_ca, log)
    except CertificateError as error:
        raise SettingsError(f"tls_certificate: {error}") from error


def _bind(
    setting: str, server: grpc.Server, address: Address, certificates: Certificates | None
) -> Address:
    where = address.where
    if (path := addresses.unix_path(where)) is not None:
        check_path(setting, path)
        if _answers(path):
            raise BindError(
                f"{setting}: expected a free address, found {where}, where another server answers"
            )
    try:
        if certificates is None or address.security is Security.PLAIN:
            port = server.add_insecure_port(where)
        else:
            port = server.add_secure_port(where, certificates.credentials(address.security))
    except RuntimeError as error:
        raise BindError(f"{setting}: expected a free address, found {where}: {error}") from error
    if path is not None:
        return address
    return replace(address, where=f"{where.rpartition(':')[0]}:{port}")


def _answers(path: Path) -> bool:
    """Whether a process listens on a Unix socket; gRPC would take it over silently."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
