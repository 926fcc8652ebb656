"""The standard health service, asked by its own stubs."""

from __future__ import annotations

import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc

from npucall.wire.replies import ServerIdentity
from npucall_server import grpc_server
from npucall_server.access.guard import OpenGuard
from npucall_server.budget import Budget
from npucall_server.grpc_server import Services
from npucall_server.handling import Handling
from npucall_server.log import Log
from npucall_server.peers import Peers
from npucall_server.services.operators import NAME
from npucall_server.settings import ServerSettings

from .scripted import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_server.services.health import Health

SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING


class Served:
    """A server of health alone; ``well`` is what it is told of its device."""

    def __init__(self) -> None:
        self.well = True
        log = Log(stream=io.StringIO())
        identity = ServerIdentity("0123456789ab", "cpu", "x")
        handling = Handling(identity, log, Peers(log, PATIENCE), OpenGuard())
        settings = ServerSettings()
        budget = Budget.of(settings, 100)
        self.services = Services(handling, budget, lambda: self.well)
        self.health: Health = self.services.health
        self.health.set(serving=True)
        self.grpc = grpc_server.server(settings, budget, 1)
        nothing: Any = type(
            "",
            (),
            {"methods": dict, "listings": dict, "waits": dict, "exchanges": dict, "waiting": []},
        )()
        self.grpc.add_generic_rpc_handlers(
            self.services.handlers(nothing, nothing, nothing, nothing)
        )
        port = self.grpc.add_insecure_port("127.0.0.1:0")
        self.grpc.start()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = health_pb2_grpc.HealthStub(self.channel)

    def check(self, service: str = "") -> int:
        return self.stub.Check(pb.HealthCheckRequest(service=service), timeout=PATIENCE).status

    def watch(self, service: str = "") -> Any:
        return self.stub.Watch(pb.HealthCheckRequest(service=service), timeout=PATIENCE)


@contextmanager
def serving() -> Iterator[Served]:
    served = Served()
    try:
        yield served
    finally:
        served.channel.close()
        served.grpc.stop(0).wait()


@pytest.mark.parametrize("service", ["", NAME])
def test_a_server_that_serves_says_so_until_it_does_not(service: str) -> None:
    with serving() as served:
        assert served.check(service) == SERVING
        served.health.set(serving=False)
        assert served.check(service) == NOT_SERVING


def test_a_server_whose_device_is_not_well_does_not_serve() -> None:
    with serving() as served:
        watch = served.watch()
        assert next(watch).status == SERVING
        served.well = False
        assert served.check() == NOT_SERVING
        assert next(watch).status == NOT_SERVING


def test_a_service_that_is_not_there_is_not_found_and_may_be_watched() -> None:
    with serving() as served:
        with pytest.raises(grpc.RpcError) as caught:
            served.check("another.Service")
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]
        assert (
            next(served.watch("another.Service")).status == pb.HealthCheckResponse.SERVICE_UNKNOWN
        )


def test_many_watchers_leave_room_for_checks() -> None:
    with serving() as served:
        watches = [served.watch() for _ in range(grpc_server._STANDING)]
        assert {next(watch).status for watch in watches} == {SERVING}
        with pytest.raises(grpc.RpcError) as caught:
            next(served.watch())
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
        assert served.check() == SERVING
        served.health.set(serving=False)
        assert {next(watch).status for watch in watches} == {NOT_SERVING}


@pytest.mark.parametrize(
    ("bytes_", "code"), [(b"\xff", "INVALID_ARGUMENT"), (None, "INVALID_ARGUMENT")]
)
def test_what_is_no_request_is_refused(bytes_: bytes | None, code: str) -> None:
    messages = iter(() if bytes_ is None else (bytes_,))
    with serving() as served, pytest.raises(grpc.RpcError) as caught:
        served.channel.stream_unary("/grpc.health.v1.Health/Check")(messages, timeout=PATIENCE)  # type: ignore[call-arg]
    assert caught.value.code().name == code  # type: ignore[attr-defined]
