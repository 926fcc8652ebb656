"""Health on a separate address, for probes that have neither certificate nor credential."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from npucall_server.carriers.peers import Peers
from npucall_server.services.health import Health
from npucall_server.serving.binding import bind_plain
from npucall_server.serving.grpc_server import health_handlers, room_for_messages, room_for_watchers

_CHECKS, _WATCHERS = 4, 4
"""The most at a time."""
_SPARE_THREADS = 2
MOST_PROBES = 256
"""Connections, of which those without a call are closed for others."""
_CONNECTION_CALLS = 4
_MESSAGE_BYTES = 1024
_IDLE_SECONDS = 10
_OPTIONS = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a second server on the address must fail
    ("grpc.max_concurrent_streams", _CONNECTION_CALLS),
    ("grpc.max_allowed_incoming_connections", MOST_PROBES),
    ("grpc.max_connection_idle_ms", _IDLE_SECONDS * 1000),
]


class HealthServer:
    """A server with only ``grpc.health.v1.Health``. Binds its address at once.

    ``names``: the services that it answers for.
    """

    def __init__(
        self, where: str, names: Sequence[str], is_well: Callable[[], bool], peers: Peers
    ) -> None:
        room = room_for_messages(_CHECKS)
        watchers = room_for_watchers(_WATCHERS, "watch the server's health")
        self.health = Health(names, is_well, peers, room, watchers)
        threads = ThreadPoolExecutor(_CHECKS + _WATCHERS + _SPARE_THREADS, "npucall-health")
        self._grpc = grpc.server(threads, options=_OPTIONS)
        self._grpc.add_generic_rpc_handlers((health_handlers(self.health, threads, threads),))
        self.address = bind_plain("health_listen", self._grpc, where)

    def start(self) -> None:
        """Starts to answer."""
        self._grpc.start()
        self.health.set(serving=True)

    def stop(self) -> None:
        """Stops at once."""
        self._grpc.stop(None)
