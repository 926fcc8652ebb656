"""How a peer that stops without a word is found: gRPC's options for both sides, and nowhere else.

A client pings while a call is under way; a server has to allow it.
"""

_PING_MS = 2000
_ANSWER_MS = 1000
_ALLOWED_MS = 1000
"""Between two pings of a client; a server sends clients away that ping more often."""

CLIENT = [
    ("grpc.keepalive_time_ms", _PING_MS),
    ("grpc.keepalive_timeout_ms", _ANSWER_MS),
    ("grpc.http2.ping_timeout_ms", _ANSWER_MS),  # what counts in newer versions instead of that
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
