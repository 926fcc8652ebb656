"""The service and the connections to it: names and gRPC's options, for every kind of sender."""

from npucall import keepalive
from npucall.limits import FRAMES_PER_MESSAGE
from npucall.v1 import (
    access_service_pb2,
    directory_service_pb2,
    operator_service_pb2,
    session_service_pb2,
)
from npucall.wire import status

_SERVICES = (
    operator_service_pb2.DESCRIPTOR.services_by_name["OperatorService"],
    access_service_pb2.DESCRIPTOR.services_by_name["AccessService"],
    session_service_pb2.DESCRIPTOR.services_by_name["SessionService"],
    directory_service_pb2.DESCRIPTOR.services_by_name["DirectoryService"],
)
_PATHS = {
    method.name: f"/{service.full_name}/{method.name}"
    for service in _SERVICES
    for method in service.methods
}
HEALTH_CHECK = "Check"
"""``grpc.health.v1.Health/Check``, of which an empty message is a request."""
_PATHS[HEALTH_CHECK] = "/grpc.health.v1.Health/Check"
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),  # every call is repeated here; gRPC's way of it costs each of them
    # Between attempts to connect that fail, so that a restart is noticed soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    # What one attempt may take, whatever its name: TLS over a slow link needs six ways.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    *keepalive.CLIENT,
]
MANY_FRAMES = (status.FRAMES_PER_MESSAGE, str(FRAMES_PER_MESSAGE))
"""Metadata of streams: messages of several frames may come."""
STREAM_OPTIONS = [
    *OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # a connection of their own: small calls do not wait
]


def instance_of(server_info: bytes) -> str:
    """Of the process that answered GetServerInfo so."""
    return operator_service_pb2.GetServerInfoResponse.FromString(server_info).server.instance


def path_of(method: str) -> str:
    """What gRPC is told to call, by the name that the proto gives the method."""
    return _PATHS[method]
