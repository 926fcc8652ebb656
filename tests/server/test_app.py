"""From binding to draining: addresses, the ready file, health."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import npucall_client
from npucall_client.testing import running_server

from .scripted import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_client.testing import ServerProcess


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def socket_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AF_UNIX takes 107 bytes."""
    return tmp_path_factory.mktemp("s")


def test_the_ready_file_names_an_address_that_answers(server: ServerProcess) -> None:
    """``running_server`` asks as soon as the file is there, and never twice."""
    host, _, port = server.target.rpartition(":")
    assert host == "127.0.0.1"
    assert 0 < int(port) < 65536
    with grpc.insecure_channel(server.target) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "npucall.v1.OperatorService"):
            request = health_pb2.HealthCheckRequest(service=service)
            answer = stub.Check(request, timeout=PATIENCE)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_the_ready_file_names_the_address_for_others_where_it_is_another_one() -> None:
    with running_server("--advertise=npu1.lab:50051") as server:
        assert server.target == "npu1.lab:50051"


def test_the_ready_file_is_gone_when_the_server_has_stopped() -> None:
    with running_server() as server:
        ready = server.log.with_name("ready")  # where running_server asks for it
        assert ready.read_text() == server.target
        server.stop()
        assert not ready.exists()


def test_the_health_of_an_unknown_service_is_not_found(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.target) as channel:
        request = health_pb2.HealthCheckRequest(service="npucall.v2.OperatorService")
        with pytest.raises(grpc.RpcError) as caught:
            health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_second_server_on_the_same_address_ends_with_71(server: ServerProcess) -> None:
    command = [sys.executable, "-m", "npucall_server", "--listen", server.target]
    ended = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 71
    with npucall_client.connect(server.target) as client:  # the first one goes on
        assert client.server_info().server.device == "cpu"


def test_a_server_listens_on_a_unix_socket(socket_folder: Path) -> None:
    target = f"unix:{socket_folder}/npucall.sock"
    with running_server(listen=target) as server, npucall_client.connect(target) as client:
        assert server.target == target
        assert client.server_info().server.soc == "Ascend910B1"


def test_a_unix_socket_that_a_killed_server_left_does_not_keep_the_next_one_out(
    socket_folder: Path,
) -> None:
    target = f"unix:{socket_folder}/left.sock"
    with running_server(listen=target) as server:
        server.process.kill()
        server.process.wait()
    assert (socket_folder / "left.sock").exists()
    with running_server(listen=target), npucall_client.connect(target) as client:
        assert client.server_info().server.soc == "Ascend910B1"


def test_a_server_listens_on_the_other_loopback() -> None:
    if not os.path.exists("/proc/net/if_inet6"):  # noqa: PTH110
        pytest.skip("this machine has no IPv6")
    with (
        running_server(listen="[::1]:0") as server,
        npucall_client.connect(server.target) as client,
    ):
        assert server.target.startswith("[::1]:")
        assert client.server_info().server.device == "cpu"


def test_listening_for_everybody_is_warned_of() -> None:
    with running_server("--insecure-bind", listen="0.0.0.0:0") as server:
        assert '"event": "warning"' in server.log.read_text()


def test_loopback_is_not_warned_of(server: ServerProcess) -> None:
    log = server.log.read_text()
    assert '"event": "serving"' in log
    assert '"event": "warning"' not in log


def test_draining_and_stopping_are_logged() -> None:
    with running_server() as server:
        server.stop()
        log = server.log.read_text()
    assert '"event": "draining", "calls": 0' in log
    assert '"event": "stopped", "finished": true' in log


@pytest.mark.more
def test_a_unix_socket_in_use_is_not_taken_over(socket_folder: Path) -> None:
    target = f"unix:{socket_folder}/used.sock"
    with running_server(listen=target):
        with (
            pytest.raises(RuntimeError, match="where another server answers"),
            running_server(listen=target),
        ):
            pass
        with npucall_client.connect(target) as client:
            assert client.server_info().server.device == "cpu"
