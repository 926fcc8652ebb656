"""``grpc.health.v1.Health``, the standard service: whether this server takes calls.

This is not the servicer of grpcio-health-checking, which sends while it holds its lock. One watcher
that does not read would block every check there, and the end of the server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator

import grpc
from google.protobuf.message import DecodeError
from grpc import StatusCode
from grpc_health.v1 import health_pb2 as pb

from npucall.errors import MessageError
from npucall_server.accounts.ledger import Ledger
from npucall_server.carriers.grpc_carrier import GrpcCaller, refusals_told
from npucall_server.carriers.peers import Peers

NAME: str = pb.DESCRIPTOR.services_by_name["Health"].full_name
_LOOK_SECONDS = 1.0


class Health:
    """One status, of the server as a whole and of each of its services.

    ``is_well`` is called each time: a server that serves but is not well is NOT_SERVING. ``room``
    is for messages on their way in, ``watchers`` for callers of Watch.
    """

    def __init__(
        self,
        services: Iterable[str],
        is_well: Callable[[], bool],
        peers: Peers,
        room: Ledger,
        watchers: Ledger,
    ) -> None:
        self._services = {"", *services}
        self._is_well = is_well
        self._peers, self._room, self._watchers = peers, room, watchers
        self._serves = False
        self._changed = threading.Condition()

    def set(self, *, serving: bool) -> None:
        """Sets whether the server takes calls."""
        with self._changed:
            self._serves = serving
            self._changed.notify_all()

    @property
    def is_serving(self) -> bool:
        """Whether it takes calls, and is well."""
        return self._serves and self._is_well()

    def check(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """The status now; NOT_FOUND for a service that this server does not have."""
        caller = GrpcCaller(context)
        with refusals_told(context):
            service = self._service(messages, caller)
        if service not in self._services:
            context.abort(StatusCode.NOT_FOUND, "service: expected a service of this server")
        response = _response(self._status())
        with refusals_told(context):
            self._peers.answers_counted(caller, len(response), self._peers.health_checks)
        return response

    def watch(self, messages: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """The status now, and each time that it changes."""
        caller = GrpcCaller(context)
        with refusals_told(context):
            service = self._service(messages, caller)
            place = self._watchers.take(caller, 1, caller.cancel)
        try:
            changes = self._changes(caller, known=service in self._services)
            yield from self._peers.read(changes, caller)
        finally:
            place.give_back()

    def _changes(self, caller: GrpcCaller, *, known: bool) -> Generator[bytes, None, None]:
        told = None
        caller.add_callback(self._wake)
        while caller.is_active():
            status = self._status() if known else pb.HealthCheckResponse.SERVICE_UNKNOWN
            if status != told:
                yield _response(status)
                told = status
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _status(self) -> pb.HealthCheckResponse.ServingStatus.ValueType:
        return (
            pb.HealthCheckResponse.SERVING
            if self.is_serving
            else pb.HealthCheckResponse.NOT_SERVING
        )

    def _service(self, messages: Iterator[bytes], caller: GrpcCaller) -> str:
        message = self._peers.message(messages, caller, self._room)
        try:
            return pb.HealthCheckRequest.FromString(message).service
        except DecodeError as error:
            raise MessageError("request: expected a serialised HealthCheckRequest") from error


def _response(status: pb.HealthCheckResponse.ServingStatus.ValueType) -> bytes:
    return pb.HealthCheckResponse(status=status).SerializeToString()
