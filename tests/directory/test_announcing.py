"""Servers in processes of their own announce themselves to directories, over real sockets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.certificates import Authority
from tests.end_to_end import wire

import npucall_client
from npucall.v1 import directory_service_pb2 as pb
from npucall_client.testing import running_server
from npucall_server.access import tokens
from npucall_server.access.identity import Role

from .house import PATIENCE, Watching, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SERVING, DRAINING = pb.MEMBER_STATE_SERVING, pb.MEMBER_STATE_DRAINING


def until(condition: Callable[[], Any], what: str) -> Any:
    never = threading.Event()
    for _ in range(int(PATIENCE * 50)):
        if found := condition():
            return found
        never.wait(0.02)
    raise AssertionError(f"did not happen: {what}")


def events(log: Path, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def directory_process(port: int, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """``npucall-directory`` in a process of its own."""
    ready = folder / "ready"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "npucall_server.directory.command"]
    flags = [f"--listen=127.0.0.1:{port}", f"--ready-file={ready}"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([*command, *flags], stderr=log)
    try:
        until(ready.exists, "the directory is ready")
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_server_says_who_it_is_and_how_busy() -> None:
    with running() as house:
        where = house.addresses[0]
        with running_server(f"--announce={where}", "--label", "rack=7", "--label=b=8") as server:
            watching = house.watch()
            watching.until_state(server.target, SERVING)
            told = watching.members[server.target]
            with npucall_client.connect(server.target) as client:
                info = client.server_info()
        assert told.server == info.server
        assert (told.product, told.version) == (info.product, info.version)
        assert dict(told.labels) == dict(info.labels) == {"rack": "7", "b": "8"}
        assert told.catalogue == info.catalogue != 0
        assert told.memory_limit == info.limits.memory_limit
        assert told.load.lanes > 0
        assert told.host == socket.gethostname()


def test_it_is_draining_at_sigterm_while_a_call_runs_and_gone_as_the_last() -> None:
    with (
        running() as house,
        running_server(f"--announce={house.addresses[0]}", wire.ENDLESS_LIMIT) as server,
        wire.bare_channel(server.target) as channel,
    ):
        watching = house.watch()
        watching.until_state(server.target, SERVING)
        call = wire.method(channel, "Execute").future(wire.long_call(*wire.ENDLESS))
        watching.until(lambda each: each.members[server.target].load.running, "the call runs")
        server.process.terminate()
        watching.until_state(server.target, DRAINING)
        assert not call.done()
        call.cancel()
        watching.until_state(server.target, None)
        assert server.process.wait(PATIENCE) == 0


@pytest.mark.more
def test_a_directory_that_is_lost_is_said_once_and_found_again(tmp_path: Path) -> None:
    port = free_port()
    with running_server(f"--announce=127.0.0.1:{port}") as server:
        lost = until(lambda: events(server.log, "directory lost"), "it is not there")
        assert lost[0]["directory"] == f"127.0.0.1:{port}"
        for count in (1, 2):
            with directory_process(port, tmp_path):
                until(lambda n=count: len(events(server.log, "announced")) == n, "found")
                with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                    Watching(channel).until_state(server.target, SERVING)
            until(lambda n=count: len(events(server.log, "directory lost")) == n + 1, "lost")
        with npucall_client.connect(server.target) as client:  # it has served all the while
            assert client.server_info().version


@pytest.mark.more
def test_one_directory_that_hangs_delays_no_other_one_and_no_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, running() as house:
        flags = f"--announce=127.0.0.1:{mute.getsockname()[1]},{house.addresses[0]}"
        with running_server(flags) as server:
            house.watch().until_state(server.target, SERVING)
            assert server.stop() == 0


@pytest.mark.more
def test_a_server_that_is_killed_becomes_a_suspect() -> None:
    with running() as house, running_server(f"--announce={house.addresses[0]}") as server:
        watching = house.watch()
        watching.until_state(server.target, SERVING)
        server.process.kill()
        watching.until_state(server.target, pb.MEMBER_STATE_SUSPECT)


@pytest.mark.more
def test_a_directory_on_a_unix_socket_is_announced_to(tmp_path: Path) -> None:
    with (
        running(listen=f"unix:{tmp_path}/d") as house,
        running_server(f"--announce=unix:{tmp_path}/d", "--advertise=npu1.lab:50051"),
    ):
        house.watch().until_state("npu1.lab:50051", SERVING)


TENANTS = """
[tenants.servers]
role = "server"
certificates = ["localhost"]
hosts = ["npu*.lab"]
[tenants.users]
"""


@pytest.mark.parametrize("way", ["certificate", "token"])
def test_a_server_proves_who_it_is_by_its_certificate_or_a_token(tmp_path: Path, way: str) -> None:
    authority = Authority(tmp_path)
    pair, own = authority.server(), authority.member("npu", ("localhost", "127.0.0.1"))
    config, hashes, token_file = (tmp_path / name for name in ("toml", "hashes", "token"))
    config.write_text(TENANTS)
    text, token = tokens.new("servers", "npu1", None, 600)
    users_text, users_token = tokens.new("users", "alice", Role.USER, 600)
    for each in token, users_token:
        tokens.append(hashes, each)
    token_file.write_text(f"{text}\n")
    announced = "localhost:50051" if way == "certificate" else "npu1.lab:50051"
    flags = [f"--announce-ca={authority.ca}", f"--advertise={announced}", *own.flags]
    if way == "token":
        flags.append(f"--announce-token-file={token_file}")
    settings = {
        "config": config, "listen": "mtls:127.0.0.1:0,tls:127.0.0.1:0", "token_hashes": hashes,
        "tls_certificate": pair.certificate, "tls_key": pair.key, "tls_client_ca": authority.ca,
    }  # fmt: skip
    with running(**settings) as house:
        where = house.addresses[0 if way == "certificate" else 1]
        with running_server(*flags, f"--announce={where}", listen="plain:127.0.0.1:0") as server:
            credentials = grpc.ssl_channel_credentials(authority.ca.read_bytes())
            with grpc.secure_channel(house.addresses[1], credentials) as channel:
                watching = Watching(channel, [("authorization", f"Bearer {users_text}")])
                watching.until_state(announced, SERVING)
            assert not events(server.log, "directory lost")


def test_a_server_is_told_why_it_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    config, hashes, token_file = (tmp_path / name for name in ("toml", "hashes", "token"))
    config.write_text(TENANTS)
    text, token = tokens.new("servers", "npu1", None, 600)
    tokens.append(hashes, token)
    token_file.write_text(text)
    settings = {
        "config": config, "listen": "tls:127.0.0.1:0", "token_hashes": hashes,
        "tls_certificate": pair.certificate, "tls_key": pair.key,
    }  # fmt: skip
    with running(**settings) as house, running_server(
        f"--announce={house.addresses[0]}", f"--announce-ca={authority.ca}",
        f"--announce-token-file={token_file}", "--advertise=other.lab:50051",
    ) as server:  # fmt: skip
        (lost,) = until(lambda: events(server.log, "directory lost"), "it is refused")
        assert "expected a host that servers/npu1 may announce, found other.lab" in lost["message"]


@pytest.mark.more
def test_who_is_no_directory_gets_no_token(tmp_path: Path) -> None:
    """A server of another authority is at the directory's address: TLS ends before all else."""
    (tmp_path / "other").mkdir()
    honest, other = Authority(tmp_path), Authority(tmp_path / "other")
    pair = other.server()
    token_file = tmp_path / "token"
    token_file.write_text("npc_secret")
    with running(
        listen="tls:127.0.0.1:0", tls_certificate=pair.certificate, tls_key=pair.key
        , insecure_bind=True,
    ) as house, running_server(
        f"--announce={house.addresses[0]}", f"--announce-ca={honest.ca}",
        f"--announce-token-file={token_file}",
    ) as server:  # fmt: skip
        until(lambda: events(server.log, "directory lost"), "the handshake fails")
        assert not [line for line in house.logged() if line.get("method") == "Announce"]
        assert not house.directory.feed.counts()["serving"]


@pytest.mark.more
def test_the_catalogue_is_the_same_in_every_process_and_another_one_for_another_product() -> None:
    digests = []
    for soc in ("Ascend910B1", "Ascend910B1", "Ascend310P3"):
        environment = {**os.environ, "PYTHONHASHSEED": str(len(digests) + 1)}
        with (
            running_server(f"--soc={soc}", environment=environment) as server,
            npucall_client.connect(server.target) as client,
        ):
            digests.append(client.server_info().catalogue)
    assert digests[0] == digests[1] != digests[2]
    assert 0 not in digests
