"""What the kernel alone gets through a link: the floor of everything that is sent through it.

``tcp.py serve HOST`` prints its port, and echoes; ``tcp.py measure HOST PORT BYTES`` prints a JSON
object: the seconds of a round trip, and those of so many bytes up.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from statistics import median

_PINGS = 11
_AT_ONCE = 1 << 18


def serve(host: str) -> None:
    """Echoes a byte at a time; reads as many bytes as are announced, then answers one."""
    with socket.create_server((host, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while size := int.from_bytes(connection.recv(8)):
                    _take(connection, size)
                    connection.sendall(b"!")


def _take(connection: socket.socket, size: int) -> None:
    while size > 0:
        size -= len(connection.recv(min(size, _AT_ONCE))) or size


def measure(host: str, port: str, size: str) -> None:
    """Prints what the link gives."""
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        round_trip = median(_seconds(connection, 1) for _ in range(_PINGS))
        up = _seconds(connection, int(size))
    print(json.dumps({"round_trip": round_trip, "up": up}))


def _seconds(connection: socket.socket, size: int) -> float:
    start = time.perf_counter()
    connection.sendall(size.to_bytes(8) + bytes(size))
    connection.recv(1)
    return time.perf_counter() - start


if __name__ == "__main__":
    {"serve": serve, "measure": measure}[sys.argv[1]](*sys.argv[2:])
