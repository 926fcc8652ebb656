"""From binding to draining: addresses, the ready file, the health service."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc
from tests.rows import each
from tests.server.fakes import PATIENCE, BlockingDevice, until
from tests.server.raw import channel_to, stream
from tests.server.serving import Served, serving

import npucall_client
from npucall_server.services import health as module
from npucall_server.services.operators import NAME
from npucall_server.serving import grpc_server
from npucall_server.serving.binding import BindError


@pytest.fixture(scope="module")
def socket_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AF_UNIX takes 107 bytes."""
    return tmp_path_factory.mktemp("s")


def answers(target: str) -> bool:
    with npucall_client.connect(target) as client:
        return client.server_info().server.device == "fake"


def test_the_ready_file_names_the_address_for_others_until_the_server_has_stopped(
    tmp_path: Path,
) -> None:
    ready = tmp_path / "ready"
    with serving(ready_file=ready) as server:
        assert ready.read_text() == server.target
        host, _, port = server.target.rpartition(":")
        assert host == "127.0.0.1"
        assert 0 < int(port) < 65536
    assert not ready.exists()
    with serving(ready_file=ready, advertise="npu1.lab:50051"):
        assert ready.read_text() == "npu1.lab:50051"


@each("kind", ["path", "abstract"])
def test_systemd_is_told_when_the_server_is_ready_and_when_it_stops(
    tmp_path_factory: pytest.TempPathFactory, kind: str
) -> None:
    """Before: `systemctl start` answered 0, whatever happened then."""
    path = f"{tmp_path_factory.mktemp('n')}/notify"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,
        pytest.MonkeyPatch.context() as m,
    ):
        manager.settimeout(PATIENCE)
        manager.bind(path if kind == "path" else "\0" + path)
        m.setenv("NOTIFY_SOCKET", path if kind == "path" else "@" + path)
        with serving():
            assert manager.recv(100) == b"READY=1"
        assert manager.recv(100) == b"STOPPING=1"


def test_a_unix_socket_that_a_killed_server_left_does_not_keep_the_next_one_out(
    socket_folder: Path,
) -> None:
    path = socket_folder / "left.sock"
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(path))
    assert path.exists()
    with serving(listen=f"unix:{path}") as server:
        assert server.target == f"unix:{path}"
        assert answers(server.target)


def test_a_unix_socket_in_use_is_not_taken_over(socket_folder: Path) -> None:
    target = f"unix:{socket_folder}/used.sock"
    with serving(listen=target):
        with (
            pytest.raises(BindError, match="where another server answers"),
            serving(listen=target),
        ):
            pass
        assert answers(target)


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="no IPv6")  # noqa: PTH110
def test_a_server_listens_on_the_other_loopback() -> None:
    with serving(listen="[::1]:0") as server:
        assert server.target.startswith("[::1]:")
        assert answers(server.target)


def test_listening_for_everybody_is_warned_of_and_loopback_is_not() -> None:
    for settings, warnings in ({"listen": "0.0.0.0:0", "insecure_bind": True}, 1), ({}, 0):
        with serving(**settings) as server:  # type: ignore[arg-type]
            assert len(server.events("serving")) == 1
            assert len(server.events("warning")) == warnings


def test_draining_and_stopping_are_logged() -> None:
    with serving() as server:
        pass
    assert [line["calls"] for line in server.events("draining")] == [0]
    assert [line["finished"] for line in server.events("stopped")] == [True]


# --- The standard health service, asked by its own stubs ------------------------------------------

SERVING, NOT_SERVING = pb.HealthCheckResponse.SERVING, pb.HealthCheckResponse.NOT_SERVING
UNKNOWN = pb.HealthCheckResponse.SERVICE_UNKNOWN


class Client:
    """A server and a channel to it."""

    def __init__(self, served: Served, channel: Any) -> None:
        self.served, self.channel = served, channel
        self.stub = health_pb2_grpc.HealthStub(channel)

    def serves(self, serving: bool) -> None:
        self.served.parts.methods.services.health.set(serving=serving)

    def check(self, service: str = "") -> int:
        return self.stub.Check(pb.HealthCheckRequest(service=service), timeout=PATIENCE).status

    def watch(self, service: str = "") -> Any:
        return self.stub.Watch(pb.HealthCheckRequest(service=service), timeout=PATIENCE)


@pytest.fixture
def client() -> Iterator[Client]:
    with serving(BlockingDevice()) as served, channel_to(served.target) as channel:
        yield Client(served, channel)


@pytest.mark.parametrize("service", ["", NAME])
def test_a_server_that_serves_says_so_until_it_does_not(client: Client, service: str) -> None:
    assert client.check(service) == SERVING
    client.serves(False)
    assert client.check(service) == NOT_SERVING


def test_a_server_whose_device_is_not_well_does_not_serve(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    served = client.served
    with stream(served) as peer:
        peer.begin(1)
        until(lambda: served.device.running == 1, "a call holds the device")
        watch = client.watch()
        assert next(watch).status == SERVING
        served.clock.advance(served.settings.device_timeout + 1)
        assert client.check() == NOT_SERVING
        assert next(watch).status == NOT_SERVING
        served.device.let_go()
        assert peer.ids(1) == [1]
        assert next(watch).status == SERVING


def test_a_service_that_is_not_there_is_not_found_and_may_be_watched(client: Client) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.check("another.Service")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]
    assert next(client.watch("another.Service")).status == UNKNOWN


def test_many_watchers_leave_room_for_checks(client: Client) -> None:
    watches = []
    for _ in range(grpc_server._STANDING * 3 // 4):  # as many as strangers may
        watches.append(client.watch())
        assert next(watches[-1]).status == SERVING  # so that few messages come at a time
    with pytest.raises(grpc.RpcError) as caught:
        next(client.watch())
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    assert client.check() == SERVING
    client.serves(False)
    assert {next(watch).status for watch in watches} == {NOT_SERVING}


@pytest.mark.parametrize("messages", [[b"\xff"], []])
def test_what_is_no_request_is_refused(client: Client, messages: list[bytes]) -> None:
    method = client.channel.stream_unary("/grpc.health.v1.Health/Check")
    with pytest.raises(grpc.RpcError) as caught:
        method(iter(messages), timeout=PATIENCE)
    assert caught.value.code().name == "INVALID_ARGUMENT"  # type: ignore[attr-defined]
