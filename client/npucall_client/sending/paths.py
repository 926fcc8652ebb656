"""The service and the connections to it: names and gRPC's options, for every kind of sender."""

from npucall.limits import FRAMES_PER_MESSAGE
from npucall.wire import keepalive, status
from npucall.wire.rpcs import RPCS

HEALTH_CHECK = "Check"
"""``grpc.health.v1.Health/Check``; an empty message is a valid request."""
_PATHS = {name: rpc.path for name, rpc in RPCS.items()}
_PATHS[HEALTH_CHECK] = "/grpc.health.v1.Health/Check"
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # every call is repeated here; gRPC's way of it costs each of them
    # The pause between failed attempts to connect, so that the client notices a restart soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long one attempt may take, despite the name: TLS on a slow link needs six trips.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    *keepalive.CLIENT,
]
MANY_FRAMES = (status.FRAMES_PER_MESSAGE, str(FRAMES_PER_MESSAGE))
"""Metadata of streams: the client takes messages of several frames."""
STREAM_OPTIONS = [
    *OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # a connection of their own: small calls do not wait
]


def path_of(method: str) -> str:
    """The path of a method for gRPC, from its name in the proto."""
    return _PATHS[method]
