"""The connections of this process, as the kernel sees them (Linux): which move, which are idle.

gRPC does not tell how much of a message has come or has been read, nor which connections are idle.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from npucall import memory
from npucall.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from npucall_server.carriers.peers import Peers
    from npucall_server.telemetry.log import Log

IDLE_SECONDS = 300.0
"""The server closes a connection that has had no call for so long, whatever carries its calls."""
_DESCRIPTORS = Path("/proc/self/fd")
_TCP_INFO = getattr(socket, "TCP_INFO", 11)
# Of struct tcp_info in linux/tcp.h.
_MOVED, _MOVED_AT = struct.Struct("QQ"), 120
"""``tcpi_bytes_acked`` and ``tcpi_bytes_received``."""
_RECEIVED, _RECEIVED_AT = struct.Struct("Q"), 128
"""``tcpi_bytes_received``."""
_GROWN_BYTES, _STRAY_BYTES = 16 * MIB, MIB
"""So much the process has to grow before anybody looks; so much a connection sends in vain."""
_LOOK_SECONDS = 10.0
"""How often it looks if nothing has grown: gRPC may also drop what comes in vain."""
_MOST_REMEMBERED = 8192
_MAPPED = "::ffff:"


def bytes_moved() -> dict[str, int]:
    """Bytes that came from each peer or that it has taken. Peers are named as gRPC spells them.

    Only for TCP; empty if the system does not tell.
    """
    moved = {}
    for name, connection in _connections():
        with closing(connection), suppress(OSError):
            moved[name] = sum(_MOVED.unpack_from(_info(connection), _MOVED_AT))
    return moved


class Connections:
    """Closes connections that keep others out, or that fill the process.

    gRPC refuses new ones where as many are open as may be, and keeps unfinished headers without a
    bound; it tells of neither. ``most``: how many a port may have. ``busy`` answers the peers with
    a call; ``peers`` knows when others had their last one. A client whose connection is
    closed opens another one with its next call.
    """

    def __init__(  # noqa: PLR0913  # what it looks at
        self,
        most: Mapping[int, int],
        busy: Callable[[], set[str]],
        peers: Peers,
        log: Log,
        resident: Callable[[], int] = memory.resident_bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._busy, self._log = most, busy, log
        self._finished, self._ended = peers.finished, peers.ended
        self._many = min(most.values(), default=0) * 3 // 4
        self._resident, self._bytes = resident, resident()
        self._clock, self._due = clock, clock() + _LOOK_SECONDS
        self._looked_ns = 0
        self._come: dict[str, int] = {}
        """Bytes from each connection up to the last look, the oldest first."""
        self._suspects: set[str] = set()
        """Strays at the last look. Their calls may have come, and wait for a thread."""

    def look(self) -> None:
        """Looks at all of them if there are many, if the process has grown, or now and then."""
        resident = self._resident()
        has_grown = resident > self._bytes + _GROWN_BYTES
        many = _open_descriptors() > self._many or len(self._ended) > _MOST_REMEMBERED
        if has_grown:
            self._bytes = resident
        if has_grown or many or self._suspects or self._clock() >= self._due:
            self._due = self._clock() + _LOOK_SECONDS
            with ExitStack() as open_:
                own = {}
                for name, connection in _connections():
                    open_.enter_context(closing(connection))
                    if connection.getsockname()[1] in self._most:
                        own[name] = connection
                self._look_at(own)

    def _look_at(self, connections: Mapping[str, socket.socket]) -> None:
        before, busy, come = self._come, self._busy(), _bytes_come(connections)
        suspects = {each for each in come if each not in busy and self._strays(each, come[each])}
        stray = suspects & self._suspects
        self._suspects = suspects - stray
        self._looked_ns = time.perf_counter_ns()
        self._come = {each: come[each] for each in (*before, *come) if each in come}
        for calls in (self._finished, self._ended):
            for gone in calls.keys() - come.keys():
                calls.pop(gone, None)
        if stray:
            _close(stray, connections)
            self._log.event("stray connections closed", connections=len(stray))
        for port, most in self._most.items():
            own = [each for each in self._come if connections[each].getsockname()[1] == port]
            idle = [each for each in own if each in before and each not in busy]
            idle.sort(key=lambda each: self._finished.get(each, 0))
            if len(own) > most * 3 // 4 and (surplus := idle[: len(own) - most // 2]):
                _close(surplus, connections)
                self._log.event("idle connections closed", connections=len(surplus))

    def _strays(self, name: str, come: int) -> bool:
        """Whether much has come without a call since the last look, or up to it, for suspects."""
        call, before = self._ended.get(name), self._come.get(name)
        if call is not None and (before is None or call >= self._looked_ns):
            return False
        return name in self._suspects or come - (before or 0) > _STRAY_BYTES


def _close(names: Iterable[str], connections: Mapping[str, socket.socket]) -> None:
    for name in names:
        with suppress(OSError):  # it has gone
            connections[name].shutdown(socket.SHUT_RDWR)


def _bytes_come(connections: Mapping[str, socket.socket]) -> dict[str, int]:
    found = {}
    for name, connection in connections.items():
        with suppress(OSError):
            found[name] = _RECEIVED.unpack_from(_info(connection), _RECEIVED_AT)[0]
    return found


def _open_descriptors() -> int:
    try:
        return len(os.listdir(_DESCRIPTORS))  # noqa: PTH208  # it need not make a Path of each
    except OSError:
        return 0


def _connections() -> Iterator[tuple[str, socket.socket]]:
    """Each TCP connection of this process: its name, and a descriptor of its own.

    A listener has no peer, and neither has a connection that has just ended.
    """
    for descriptor in _descriptors():
        with suppress(OSError), ExitStack() as undo:
            connection = undo.enter_context(closing(_duplicate(descriptor)))
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                name = name_of(connection)
                undo.pop_all()
                yield name, connection


def _duplicate(descriptor: int) -> socket.socket:
    own = os.dup(descriptor)
    try:
        return socket.socket(fileno=own)
    except OSError:  # it was a socket a moment ago
        os.close(own)
        raise


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
