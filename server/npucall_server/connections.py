"""How many bytes each connection of this process has moved, as the kernel counts them (Linux).

gRPC does not tell how much of a message has come, or has been read: the connection below it does.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import closing, suppress
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_TCP_INFO = getattr(socket, "TCP_INFO", 11)
_COUNTERS = struct.Struct("QQ")
"""``tcpi_bytes_acked`` and ``tcpi_bytes_received`` of linux/tcp.h."""
_AT = 120
_MAPPED = "::ffff:"


def bytes_moved() -> dict[str, int]:
    """Bytes that came in, and that the peer has taken, by the peer's name as gRPC spells it.

    Of TCP alone; empty where the system does not tell.
    """
    moved = {}
    for descriptor in _descriptors():
        with suppress(OSError), closing(socket.socket(fileno=os.dup(descriptor))) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                moved[_name(connection)] = _count(connection)
    return moved


def _descriptors() -> list[int]:
    """Of sockets."""
    found = []
    with suppress(OSError):
        for link in _DESCRIPTORS.iterdir():
            with suppress(OSError):
                if str(link.readlink()).startswith("socket:"):
                    found.append(int(link.name))
    return found


def _name(connection: socket.socket) -> str:
    host, port = connection.getpeername()[:2]
    host = host.removeprefix(_MAPPED)
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _count(connection: socket.socket) -> int:
    info = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _AT + _COUNTERS.size)
    return sum(_COUNTERS.unpack_from(info, _AT))
