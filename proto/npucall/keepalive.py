"""How a peer that stops without a word is found: gRPC's options for both sides, and nowhere else.

A client pings while a call is under way; a server has to allow it. Three things can be silent:

- The link: the kernel at the other end acknowledges nothing. On Linux gRPC makes of the client's
  keepalive timeout the TCP_USER_TIMEOUT of its connections. So a link that is cut ends them 1.3 to
  1.5 s behind the next byte, which a ping sends after 2 s at the latest.
- The process: its kernel acknowledges, and a ping stays without an answer. This is found after
  ``_SILENCE_MS``. It cannot be as short, since a ping waits in the client's kernel behind what the
  caller sends: with 1 s a call of 3 MiB over 1.5 Mbit/s, with 2 s of queue on the way, broke eleven
  times in 98 s and never came through; this way it took 30 s. The same holds for a link that is cut
  behind a proxy, and on systems without TCP_USER_TIMEOUT.
- Nothing: a process that is stopped, or has no processor, for less than that loses no call.
"""

_PING_MS = 2000
_UNACKNOWLEDGED_MS = 1000
_SILENCE_MS = 30_000
_ALLOWED_MS = 1000
"""Between two pings of a client; a server sends clients away that ping more often."""

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
