"""Addresses as the setting ``listen`` has them: HOST:PORT, [IPV6]:PORT, unix:PATH, with a prefix.

The prefix says how an address is secured: ``mtls:``, ``tls:`` or ``plain:``.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

_UNIX = "unix:"
_LONGEST_PATH = 107
"""The longest path of a socket, in bytes; unix(7)."""


class Security(StrEnum):
    """How an address is secured."""

    PLAIN = "plain"
    """Not at all."""
    TLS = "tls"
    """Encrypted; the server has a certificate."""
    MTLS = "mtls"
    """Encrypted; server and callers have certificates."""


@dataclass(frozen=True)
class Address:
    """One address, and how it is secured."""

    where: str
    """The address as gRPC spells it."""
    security: Security

    def __str__(self) -> str:
        return f"{self.security}:{self.where}"


def parse(text: str, usual: Security) -> Address:
    """Reads an address. ``usual``: the security of a TCP address without a prefix.

    Raises ValueError if the text is no address.
    """
    prefix, where = split_prefix(text)
    check(where)
    if prefix:
        return Address(where, Security(prefix))
    return Address(where, Security.PLAIN if where.startswith(_UNIX) else usual)


def split_list(texts: str) -> list[str]:
    """The addresses of a list with commas between them."""
    return [text.strip() for text in texts.split(",")]


def split_prefix(text: str) -> tuple[str, str]:
    """The prefix that says how an address is secured, empty if there is none; and the rest."""
    before, colon, rest = text.partition(":")
    return (before, rest) if colon and before in set(Security) else ("", text)


def check(address: str) -> str:
    """Checks an address without a prefix. Raises ValueError if it is none."""
    if not address.startswith(_UNIX):
        port = re.search(r":([0-9]+)$", address)
        if port is None:
            raise ValueError(f"expected HOST:PORT or unix:PATH, found {address!r}")
        if int(port[1]) > 65535:  # gRPC would take what is left of it in 16 bits  # noqa: PLR2004
            raise ValueError(f"expected a port up to 65535, found {port[1]}")
    return address


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    if address.startswith(_UNIX):
        return True
    return is_loopback_host(address.rpartition(":")[0].strip("[]"))


def is_loopback_host(host: str) -> bool:
    """Whether only this machine can reach a host: a name, or an IP address without brackets."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def at_host(host: str, address: str) -> str:
    """The address with that host. Raises ValueError if the address names another host, or none."""
    prefix, address = split_prefix(address)
    bare = host.strip("[]")
    if ":" in bare and not _is_ip(bare):
        raise ValueError(f"listen_host: expected a host without a port, found {host!r}")
    if address.startswith(_UNIX):
        raise ValueError(
            f"listen_host: expected none, since listen is {address}, found {host}; unset one of "
            "them"
        )
    named, _, port = address.rpartition(":")
    if named.strip("[]") not in ("", bare):
        raise ValueError(
            f"listen_host: expected {named}, the host of listen, found {host}; unset one of them"
        )
    before = f"{prefix}:" if prefix else ""
    return f"{before}[{bare}]:{port}" if ":" in bare else f"{before}{bare}:{port}"


def port(address: str) -> int | None:
    """The port of an address; None if it has none."""
    return None if address.startswith(_UNIX) else int(address.rpartition(":")[2])


def unix_path(address: str) -> Path | None:
    """The path of an address's socket; None if it is no Unix socket."""
    return Path(address.removeprefix(_UNIX)) if address.startswith(_UNIX) else None


def fault_of_path(path: Path) -> str:
    """Why a socket can never be made at a path; empty if it can."""
    folder, length = path.absolute().parent, len(os.fsencode(path))
    if length > _LONGEST_PATH:
        return f"expected a path of at most {_LONGEST_PATH} bytes, found {length}: {path}"
    if not folder.is_dir():
        return f"expected a path in a folder that exists, found no folder {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"expected a folder where this user may create files, found {folder}"
    return ""


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
