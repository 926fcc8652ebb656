"""The connections of this process, as the kernel sees them (Linux): which move, which are idle.

gRPC does not tell how much of a message has come or has been read, nor which connections are idle.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from npucall_server.telemetry.log import Log

IDLE_SECONDS = 300.0
"""The server closes a connection that has had no call for so long, whatever carries its calls."""
_DESCRIPTORS = Path("/proc/self/fd")
_TCP_INFO = getattr(socket, "TCP_INFO", 11)
# Of struct tcp_info in linux/tcp.h.
_SILENCE, _SILENCE_AT = struct.Struct("I"), 52
"""``tcpi_last_data_recv``: ms since data last came."""
_MOVED, _MOVED_AT = struct.Struct("QQ"), 120
"""``tcpi_bytes_acked`` and ``tcpi_bytes_received``."""
_IDLE_MS = 1000
_MAPPED = "::ffff:"


def bytes_moved() -> dict[str, int]:
    """Bytes that came from each peer or that it has taken. Peers are named as gRPC spells them.

    Only for TCP; empty if the system does not tell.
    """
    moved = {}
    for connection in _connections():
        with closing(connection), suppress(OSError):
            moved[name_of(connection)] = sum(_MOVED.unpack_from(_info(connection), _MOVED_AT))
    return moved


class IdleConnections:
    """Closes connections without a call once a port has nearly as many as may be open.

    Otherwise idle connections would keep everybody out: gRPC keeps those that it has and refuses
    new ones. ``busy`` answers the peers with a call. A client whose connection is closed opens
    another one with its next call.
    """

    def __init__(self, port: int, most: int, busy: Callable[[], set[str]], log: Log) -> None:
        self._port = port
        self._many = most * 3 // 4
        self._few = most // 2
        self._busy = busy
        self._log = log

    def look(self) -> None:
        """Closes connections if there are too many, first those that are silent for longest."""
        if _open_descriptors() <= self._many:
            return
        with ExitStack() as open_:
            every = [open_.enter_context(closing(each)) for each in _connections()]
            connections = [each for each in every if each.getsockname()[1] == self._port]
            surplus = len(connections) - self._few
            if len(connections) > self._many and (idle := self._idle(connections)[:surplus]):
                for connection in idle:
                    with suppress(OSError):  # it has gone
                        connection.shutdown(socket.SHUT_RDWR)
                self._log.event("idle connections closed", connections=len(idle))

    def _idle(self, connections: Iterable[socket.socket]) -> list[socket.socket]:
        busy, silences = self._busy(), {}
        for connection in connections:
            with suppress(OSError):
                if name_of(connection) not in busy:
                    silences[connection] = _SILENCE.unpack_from(_info(connection), _SILENCE_AT)[0]
        idle = [connection for connection, silence in silences.items() if silence >= _IDLE_MS]
        return sorted(idle, key=silences.__getitem__, reverse=True)


def _open_descriptors() -> int:
    try:
        return len(os.listdir(_DESCRIPTORS))  # noqa: PTH208  # it need not make a Path of each
    except OSError:
        return 0


def _connections() -> Iterator[socket.socket]:
    """Each TCP socket of this process, with a descriptor of its own."""
    for descriptor in _descriptors():
        with suppress(OSError):
            connection = socket.socket(fileno=os.dup(descriptor))
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                yield connection
            else:
                connection.close()


def _descriptors() -> list[int]:
    """The descriptors of sockets."""
    found = []
    with suppress(OSError):
        for link in _DESCRIPTORS.iterdir():
            with suppress(OSError):
                if str(link.readlink()).startswith("socket:"):
                    found.append(int(link.name))
    return found


def name_of(connection: socket.socket) -> str:
    """The peer of a TCP connection, as gRPC spells it."""
    host, port = connection.getpeername()[:2]
    host = host.removeprefix(_MAPPED)
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _info(connection: socket.socket) -> bytes:
    return connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _MOVED_AT + _MOVED.size)
