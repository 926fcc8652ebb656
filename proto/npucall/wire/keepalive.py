"""How a silent peer is found, in this one place: gRPC's options for both sides, and the kernel's.

A client pings while a call runs; a server must allow it. Three things can be silent:

- The link: the kernel at the other end acknowledges nothing. On Linux gRPC uses the client's
keepalive timeout as the TCP_USER_TIMEOUT of its connections. So if a link is cut, its connections
end 1.3 to 1.5 s after the next byte, which a ping sends after 2 s at the latest.
- The process: its kernel acknowledges, and a ping stays without an answer. The client finds this
after ``_SILENCE_MS``. It cannot be as short as above, because a ping waits in the client's kernel
until the caller's data is sent: with 1 s, a call of 3 MiB over 1.5 Mbit/s, with 2 s of queue on the
way, broke eleven times in 98 s and never succeeded; with 30 s the call took 30 s and succeeded. The
same time holds for a link that is cut on the far side of a proxy, and on systems without
TCP_USER_TIMEOUT. In frames the server sends ALIVE every ``ALIVE_SECONDS``, and the client answers.
- Nothing: if a process is stopped for less than that, or has no processor, it loses no call.
"""

import selectors
import socket

_PING_MS = 2000
_UNACKNOWLEDGED_MS = 1000
_SILENCE_MS = 30_000
SILENCE_SECONDS = _SILENCE_MS / 1000
ALIVE_SECONDS = SILENCE_SECONDS / 3
_ALLOWED_MS = 1000
"""Between two pings of a client; a server disconnects clients that ping more often."""

CLIENT = [
    ("grpc.keepalive_time_ms", _PING_MS),
    ("grpc.keepalive_timeout_ms", _UNACKNOWLEDGED_MS),
    ("grpc.http2.ping_timeout_ms", _SILENCE_MS),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),  # any number; else two, then one a minute
]
SERVER = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # What counts in gRPC 1.85 instead of that: with its default of 60 s it took 80.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", _ALLOWED_MS),
]


def for_calls(connection: socket.socket) -> None:
    """Makes the kernel send at once, and find a link that is cut, as gRPC does for a client."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = {"TCP_KEEPIDLE": _PING_MS // 1000, "TCP_KEEPINTVL": _UNACKNOWLEDGED_MS // 1000}
    for name, value in {**seconds, "TCP_USER_TIMEOUT": _UNACKNOWLEDGED_MS}.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def takes_more(connection: object) -> bool:
    """Whether a few bytes can be sent there without waiting."""
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(connection, selectors.EVENT_WRITE)  # type: ignore[arg-type]
        except (OSError, ValueError):  # it was closed
            return False
        return bool(selector.select(0))
