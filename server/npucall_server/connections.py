"""The connections of this process, as the kernel knows them (Linux): what moves, what is idle.

gRPC tells neither how much of a message has come, or has been read, nor which connections are idle.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from npucall_server.log import Log

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
    for connection in _connections():
        with closing(connection), suppress(OSError):
            moved[_name(connection)] = _count(connection)
    return moved


class IdleConnections:
    """Closes connections without a call once most of those that may be open are.

    Or idle ones would keep everybody out: gRPC refuses further ones, and keeps those that it has.
    ``busy`` answers the peers with a call. A client whose connection is closed opens another one
    with its next call.
    """

    def __init__(self, most: int, busy: Callable[[], set[str]], log: Log) -> None:
        self._many = most * 3 // 4
        self._few = most // 2
        self._busy = busy
        self._log = log
        self._moved: dict[str, int] = {}
        """At the last look."""

    def look(self) -> None:
        """Closes those too many that have not moved since the last look."""
        if _open_descriptors() <= self._many:
            return
        before, self._moved = self._moved, bytes_moved()
        surplus = len(self._moved) - self._few
        if len(self._moved) <= self._many:
            return
        busy = self._busy()
        still = [name for name, count in self._moved.items() if before.get(name) == count]
        idle = {name for name in still if name not in busy}
        closed = _shut_down(set(sorted(idle)[:surplus]))
        if closed:
            self._log.event("idle connections closed", connections=closed)


def _shut_down(names: set[str]) -> int:
    closed = 0
    for connection in _connections():
        with closing(connection), suppress(OSError):
            if _name(connection) in names:
                connection.shutdown(socket.SHUT_RDWR)
                closed += 1
    return closed


def _open_descriptors() -> int:
    try:
        return len(os.listdir(_DESCRIPTORS))  # noqa: PTH208  # it need not make a Path of each
    except OSError:
        return 0


def _connections() -> Iterator[socket.socket]:
    """Each TCP socket of this process, by a descriptor of its own."""
    for descriptor in _descriptors():
        with suppress(OSError):
            connection = socket.socket(fileno=os.dup(descriptor))
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                yield connection
            else:
                connection.close()


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
