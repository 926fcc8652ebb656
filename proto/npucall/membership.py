"""A pool's times and texts, which servers, directories and clients share."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from npucall.limits import (
    MAX_LABEL_NAME_BYTES,
    MAX_LABEL_VALUE_BYTES,
    MAX_LABELS,
    MAX_NAME_BYTES,
)
from npucall.texts import cut

BEAT_SECONDS = 1.0
"""Between two beats of a server."""
SUSPECT_SECONDS = 3.0
"""Of silence, after which clients ask this member last; on a busy host a beat may be late."""
REMOVED_SECONDS = 30.0
"""Of silence, after which a member is gone."""
COMPLETE_SECONDS = 3.0
"""After its start, until a directory knows all members; before that, clients remove none."""
QUIET_SECONDS = 10.0
"""Longest time without a message to those who watch."""
DIRECTORY_PORT = 50050
"""Of a directory, if none is given."""

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_./-]*)")
_LARGEST_PORT = 65535
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_SCHEMES = frozenset(
    {"dns", "fd", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds", "google-c2p"}
)
"""Names that gRPC does not take for a host."""


def check_address(address: str) -> str:
    """The address, as HOST:PORT or [IPV6]:PORT; raises ValueError for anything else.

    Every address from others is checked here before a client connects to it: gRPC would take
    ``unix:1`` for a socket, and ``dns:1`` for a DNS query.
    """
    host, _, port = address.rpartition(":")
    found = repr(address[:300])
    if _PORT.fullmatch(port) is None or int(port) > _LARGEST_PORT:
        raise ValueError(f"expected HOST:PORT with a port up to {_LARGEST_PORT}, found {found}")
    if host.startswith("[") and host.endswith("]"):
        is_host, names_nobody = _is_ip(host[1:-1], 6), host[1:-1] == "::"
    else:
        is_host, names_nobody = _is_ip(host, 4) or _is_name(host), host == "0.0.0.0"  # noqa: S104
    if not is_host:
        raise ValueError(f"expected the name or IP address of a host before :{port}, found {found}")
    if names_nobody:
        raise ValueError(f"expected an address that others can reach, found {found}")
    return address


def split_address(address: str) -> tuple[str, int]:
    """Host, without brackets, and port. Raises ValueError for what is no HOST:PORT."""
    host, _, port = check_address(address).rpartition(":")
    return host.strip("[]"), int(port)


def fault_of_labels(labels: Mapping[str, str]) -> str:
    """What is wrong with labels; empty if nothing is."""
    if len(labels) > MAX_LABELS:
        return f"expected at most {MAX_LABELS} labels, found {len(labels)}"
    for name, value in labels.items():
        if not _LABEL.fullmatch(name) or len(name) > MAX_LABEL_NAME_BYTES:
            return (
                f"expected a name of at most {MAX_LABEL_NAME_BYTES} characters of a-z, 0-9, _, ., "
                f"/ and -, found {cut(name, MAX_NAME_BYTES)!r}"
            )
        if not value.isprintable() or len(value.encode()) > MAX_LABEL_VALUE_BYTES:
            return (
                f"expected a value of {name} of at most {MAX_LABEL_VALUE_BYTES} bytes of printable "
                f"characters, found {cut(value, MAX_NAME_BYTES)!r}"
            )
    return ""


def _is_name(host: str) -> bool:
    if host.lower() in _SCHEMES or _NAME.fullmatch(host) is None:
        return False
    return not host.replace(".", "").isdecimal()  # an IP address that is none


def _is_ip(host: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(host).version == version
    except ValueError:
        return False
