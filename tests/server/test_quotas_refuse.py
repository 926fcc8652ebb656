"""A tenant that has spent a quota is told which, over real sockets; another tenant goes on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import grpc
import pytest

from npucall.v1 import operator_service_pb2 as pb
from npucall.v1 import tensor_pb2

from .fakes import until
from .raw import RawStream, call_of
from .tenant_server import TENANTS, Refusal, TenantServer, ask, bearer, refusal, tenant_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_server.devices.base import Turn

LIMITED = """
[tenants.calls]
calls = 1
[tenants.memory]
memory = "1KiB"
[tenants.streams]
streams = 1
[tenants.time]
device_seconds_per_hour = 1e-6
"""
SMALL, LARGE = 2, 4096


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantServer]:
    with tenant_server(tmp_path_factory.mktemp("q")) as server:
        server.config.write_text(TENANTS + LIMITED)
        server.server.reload()
        yield server


@pytest.fixture(scope="module")
def channel(server: TenantServer) -> Iterator[grpc.Channel]:
    with server.channel() as channel:
        yield channel


def request(elements: int = SMALL) -> bytes:
    storage = [tensor_pb2.Storage(data=bytes(4 * elements))] * 3
    return pb.ExecuteRequest(call=call_of(elements), storage=storage).SerializeToString()


def told(channel: grpc.Channel, token: str, elements: int = SMALL) -> Refusal:
    """Why Execute is refused."""
    with pytest.raises(grpc.RpcError) as refused:
        ask(channel, "Execute", request(elements), bearer(token))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    return refusal(refused.value)


@contextmanager
def under_way(server: TenantServer, channel: grpc.Channel, token: str) -> Iterator[RawStream]:
    """A call of a stream whose bytes are still to come."""
    peer = RawStream(channel, metadata=bearer(token))
    peer.begin_chunked(1)
    until(lambda: server.executor.calls_in_flight == 1, "the call is admitted")
    yield peer
    peer.call.cancel()
    until(server.is_at_rest, "nothing is left")


def test_of_calls_for_all_callers_of_the_tenant_together(
    server: TenantServer, channel: grpc.Channel
) -> None:
    first, second = server.token("ann", "calls"), server.token("ben", "calls")
    plan = pb.PlanRequest(call=call_of(SMALL)).SerializeToString()
    with under_way(server, channel, first) as peer:
        answer = told(channel, second)
        assert (answer.reason, answer.details["quota"]) == ("QUOTA", "calls")
        assert answer.details["setting"] == "tenants.calls.calls"
        peer.begin(2)
        assert peer.reason(2) == "QUOTA"
        assert ask(channel, "Plan", plan, bearer(second))  # which holds nothing
        assert ask(channel, "Execute", request(), bearer(server.token("carl")))  # another tenant's
    assert ask(channel, "Execute", request(), bearer(second))


def test_of_streams(server: TenantServer, channel: grpc.Channel) -> None:
    token = server.token("ann", "streams")
    with under_way(server, channel, token):
        assert RawStream(channel, metadata=bearer(token)).end_of_stream() == "QUOTA"
        assert ask(channel, "Execute", request(), bearer(token))


def test_of_memory_where_a_call_never_fits_it_is_told_so(
    server: TenantServer, channel: grpc.Channel
) -> None:
    token = server.token("ann", "memory")
    assert ask(channel, "Execute", request(SMALL), bearer(token))
    answer = told(channel, token, LARGE)
    assert (answer.reason, answer.details["setting"]) == ("TOO_LARGE", "tenants.memory.memory")


def test_of_the_device_when_it_comes_back(
    server: TenantServer, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(turn: Turn) -> None:
        with turn():
            server.clock.advance(1.0)

    monkeypatch.setattr(server.device, "_run", run)
    token = server.token("ann", "time")
    assert ask(channel, "Execute", request(), bearer(token))
    answer = told(channel, token)
    assert (answer.reason, answer.details["quota"]) == ("QUOTA", "device_seconds_per_hour")
    assert "retry in" in answer.message
    peer = RawStream(channel, metadata=bearer(token))
    peer.begin(1)
    assert peer.reason(1) == "QUOTA"
    peer.close()
