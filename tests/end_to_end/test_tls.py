"""Client and server over TLS: who is let in, what changes without a failed call."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.certificates import Authority

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall_client.testing import running_server

from .proxies import delaying

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from npucall_client import Client
    from npucall_client.testing import ServerProcess

pytestmark = [pytest.mark.usefixtures("sender_in_sweeps"), pytest.mark.more]

ONE = np.ones(4, np.float32)
LARGE = np.ones(2**21, np.float32)


def run(client: Client, array: Any = ONE) -> Any:
    return client.run("aclnnL1LossBackward", array, self=array, target=array)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[ServerProcess]:
    """A server to which callers bring a certificate."""
    flags = *authority.server().flags, f"--tls-client-ca={authority.ca}"
    with running_server(*flags) as server:
        yield server


def identity(authority: Authority, name: str = "anna") -> dict[str, Path]:
    pair = authority.client(name)
    return {"ca": authority.ca, "certificate": pair.certificate, "key": pair.key}


def test_calls_of_every_way_travel_over_mutual_tls(
    server: ServerProcess, authority: Authority
) -> None:
    with npucall_client.connect(server.target, **identity(authority)) as client:
        run(client)
        run(client, LARGE)
        with client.pipeline() as pipeline:
            call = pipeline.submit("aclnnL1LossBackward", ONE, self=ONE, target=ONE)
            assert call.result(20).shape == (4,)


def test_the_command_takes_certificates_of_the_environment(
    server: ServerProcess, authority: Authority
) -> None:
    given = {f"NPUCALL_{name.upper()}": str(path) for name, path in identity(authority).items()}
    command = [sys.executable, "-m", "npucall_client.command", "info", server.target]
    command = [
        sys.executable,
        "-c",
        "from npucall_client.command import main; main()",
        *command[3:],
    ]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **given}
    )
    assert ended.returncode == 0, ended.stderr
    assert "cpu" in ended.stdout


def refusal(target: str, **given: Any) -> str:
    with pytest.raises(ServerUnreachableError) as raised:
        npucall_client.connect(target, connect_timeout=1.0, **given)
    return str(raised.value)


def test_a_server_of_another_authority_is_refused_and_the_error_says_so(
    server: ServerProcess, authority: Authority, tmp_path: Path
) -> None:
    given = {**identity(authority), "ca": Authority(tmp_path).ca}
    assert "does not trust the certificate" in refusal(server.target, **given)


def test_a_server_with_another_name_is_refused_and_the_error_says_so(
    authority: Authority,
) -> None:
    with running_server(*authority.server("elsewhere", ("elsewhere.lab",)).flags) as server:
        assert "is for another host" in refusal(server.target, ca=authority.ca)


def test_who_brings_no_certificate_is_refused(server: ServerProcess, authority: Authority) -> None:
    assert "wants a certificate of the client" in refusal(server.target, ca=authority.ca)


def test_who_does_not_speak_tls_is_refused(server: ServerProcess) -> None:
    assert "uses TLS; set tls" in refusal(server.target)


def test_a_token_travels_over_tls(authority: Authority) -> None:
    with (
        running_server(*authority.server().flags) as server,
        npucall_client.connect(server.target, ca=authority.ca, token="secret") as client,
    ):
        run(client)


def test_an_attempt_to_connect_over_a_long_way_is_made_once(authority: Authority) -> None:
    with (
        running_server(*authority.server().flags) as server,
        delaying(server.target, 0.3) as way,
        npucall_client.connect(way.target, ca=authority.ca, connect_timeout=20) as client,
    ):
        run(client)
        assert way.connections == 1


def test_a_restart_over_tls_costs_no_call(authority: Authority) -> None:
    flags = authority.server().flags
    with running_server(*flags) as server:
        target = server.target
        client = npucall_client.connect(target, ca=authority.ca)
        run(client)
    with client, running_server(*flags, listen=target):
        run(client)


def test_new_certificates_of_a_client_count_for_new_calls(tmp_path: Path) -> None:
    """The server's authority changes, so that it lets in none with the old certificate."""
    before, clients = Authority(tmp_path), tmp_path / "clients.pem"
    clients.write_bytes(before.ca.read_bytes())
    flags = *before.server().flags, f"--tls-client-ca={clients}"
    with (
        running_server(*flags) as server,
        npucall_client.connect(server.target, **identity(before)) as client,
        client.pipeline() as pipeline,
    ):
        run(client)
        pipeline.submit("aclnnL1LossBackward", ONE, self=ONE, target=ONE).result(20)
        first = client._transport.connections._current  # type: ignore[attr-defined]
        after = Authority(tmp_path, "after")
        clients.write_bytes(after.ca.read_bytes())
        after.client("anna")
        client._transport.connections._next_look = 0.0  # type: ignore[attr-defined]
        run(client)
        connections = client._transport.connections  # type: ignore[attr-defined]
        assert connections._current is not first
        assert connections._retired == [first]  # the pipeline has a stream there
        pipeline.submit("aclnnL1LossBackward", ONE, self=ONE, target=ONE).result(20)
        pipeline.close()
        connections._next_look = 0.0
        run(client)
        assert connections._retired == []


def test_half_of_a_new_pair_of_a_client_leaves_the_old_one(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    flags = *authority.server().flags, f"--tls-client-ca={authority.ca}"
    given = identity(authority)
    with running_server(*flags) as server, npucall_client.connect(server.target, **given) as client:
        connections = client._transport.connections  # type: ignore[attr-defined]
        first = connections._current
        given["certificate"].write_bytes(authority.client("bert").certificate.read_bytes())
        connections._next_look = 0.0
        run(client)
        assert connections._current is first


ROTATIONS = [20, pytest.param(1000, marks=pytest.mark.long)]


@pytest.mark.parametrize("rotations", ROTATIONS)
def test_no_call_fails_while_all_certificates_are_rotated_under_load(
    tmp_path: Path, rotations: int
) -> None:
    """Certificate and key are replaced one after the other, as most tools do it."""
    authority = Authority(tmp_path)
    flags = *authority.server().flags, f"--tls-client-ca={authority.ca}"
    done = threading.Event()
    counts = itertools.count()

    def call_until_done(name: str) -> int:
        """On a connection of its own, and from time to time on a new one."""
        calls = 0
        while not done.is_set():
            with npucall_client.connect(server.target, **identity(authority, name)) as client:
                connections = client._transport.connections  # type: ignore[attr-defined]
                for turn in range(20):
                    if turn % 5 == 0:
                        authority.client(name)
                        connections._next_look = 0.0  # as if a second had passed
                    run(client, LARGE if turn % 10 == 3 else ONE)
                    calls += 1
                    next(counts)
        return calls

    with running_server(*flags) as server, ThreadPoolExecutor(3) as threads:
        callers = [threads.submit(call_until_done, name) for name in ("anna", "bert", "cleo")]
        try:
            for _ in range(rotations):
                before = next(counts)
                authority.server()
                while next(counts) < before + 3 and not any(each.done() for each in callers):
                    done.wait(0.01)
        finally:
            done.set()
        assert all(caller.result(60) > 0 for caller in callers)
