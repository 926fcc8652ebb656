"""Addresses as the setting ``listen`` has them: HOST:PORT, [IPV6]:PORT, unix:PATH."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path

_UNIX = "unix:"
_LONGEST_PATH = 107
"""Bytes; unix(7)."""


def check(address: str) -> str:
    """The address; raises ValueError for what is none."""
    if not address.startswith(_UNIX):
        port = re.search(r":([0-9]+)$", address)
        if port is None:
            raise ValueError(f"listen: expected HOST:PORT or unix:PATH, found {address!r}")
        if int(port[1]) > 65535:  # gRPC would take what is left of it in 16 bits  # noqa: PLR2004
            raise ValueError(f"listen: expected a port up to 65535, found {port[1]}")
    return address


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    if address.startswith(_UNIX):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def at_host(host: str, address: str) -> str:
    """An address on that host; raises ValueError where the address names another one, or none."""
    bare = host.strip("[]")
    if ":" in bare and not _is_ip(bare):
        raise ValueError(f"listen_host: expected a host without a port, found {host!r}")
    if address.startswith(_UNIX):
        raise ValueError(
            f"listen_host: expected none beside listen {address}, found {host}; unset one of them"
        )
    named, _, port = address.rpartition(":")
    if named.strip("[]") not in ("", bare):
        raise ValueError(
            f"listen_host: expected {named}, the host of listen, found {host}; unset one of them"
        )
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def port(address: str) -> int | None:
    """The port of an address; None for one of another kind."""
    return None if address.startswith(_UNIX) else int(address.rpartition(":")[2])


def unix_path(address: str) -> Path | None:
    """Where the socket of an address is; None for an address of another kind."""
    return Path(address.removeprefix(_UNIX)) if address.startswith(_UNIX) else None


def fault_of_path(path: Path) -> str:
    """Why no socket can be made at a path, however often it is tried; empty if one can."""
    folder, length = path.absolute().parent, len(os.fsencode(path))
    if length > _LONGEST_PATH:
        return f"expected a path of at most {_LONGEST_PATH} bytes, found {length}: {path}"
    if not folder.is_dir():
        return f"expected a folder that exists, found none at {folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"expected a folder in which this user may make files, found {folder}"
    return ""


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
