"""The standard health service, which remembers nobody's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from grpc_health.v1 import health, health_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import grpc

_UNKNOWN = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)


class Health(health.HealthServicer):
    """Tells the health of these services.

    The class below keeps every name that was ever watched, whatever it is and however long.
    """

    def __init__(self, services: Iterable[str]) -> None:
        super().__init__(experimental_non_blocking=True)
        self._services = frozenset(services)

    def Watch(  # noqa: N802  # the name of the method
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.ServicerContext,
        send_response_callback: Callable[..., Any] | None = None,
    ) -> Any:
        """A service that is not there will not be: its watcher is told so once."""
        send = send_response_callback
        if request.service in self._services or send is None:
            return super().Watch(request, context, send)
        send(_UNKNOWN)
        context.add_callback(lambda: send(None))
        return None
