"""Client and server over TLS: who is let in, what changes without a failed call."""

import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from tests.certificates import Authority
from tests.summary import figures

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall_client import Client
from npucall_client.sending.frames import frame_carrier
from npucall_client.sending.frames.frame_places import FramesPlace

from . import wire
from .every_way import LARGE, call_every_way
from .proxies import CuttingProxy

pytestmark = [pytest.mark.usefixtures("sender_in_sweeps"), pytest.mark.more]

ONE = np.ones(4, np.float32)


class SlowProxy(CuttingProxy):
    """Lets nothing pass for the first second of a connection, as a long way does."""

    def serve(self, client: socket.socket) -> None:
        time.sleep(1.0)
        super().serve(client)


def run(client: Client, array: Any = ONE) -> Any:
    return client.run("aclnnL1LossBackward", array, self=array, target=array)


@contextmanager
def served(authority: Authority, *, ca: Path | None = None, **settings: Any) -> Iterator[str]:
    """A server of this process. ``ca``: whose certificates callers bring, if they have to."""
    pair = authority.server()
    files = {"tls_certificate": pair.certificate, "tls_key": pair.key, "tls_client_ca": ca}
    frames = {"frames_listen": "127.0.0.1:0", "frames_socket": "off"}
    with wire.server_here(**files, **frames, **settings) as server:
        yield server.address


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[str]:
    """A server to which callers bring a certificate."""
    with served(authority, ca=authority.ca) as target:
        yield target


def identity(authority: Authority, name: str = "anna") -> dict[str, Path]:
    pair = authority.client(name)
    return {"ca": authority.ca, "certificate": pair.certificate, "key": pair.key}


@pytest.mark.parametrize(("carrier", "travels"), [("auto", "frames"), ("grpc", "grpc")])
def test_calls_of_every_way_travel_over_mutual_tls(
    server: str, authority: Authority, carrier: Literal["auto", "grpc"], travels: str
) -> None:
    with npucall_client.connect(server, **identity(authority), carrier=carrier) as client:
        assert client.carrier() == travels
        call_every_way(client)


def test_a_port_of_frames_with_a_certificate_of_others_gets_nothing(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(authority) as target, served(Authority(tmp_path)) as other:
        with npucall_client.connect(other, ca=tmp_path / "ca.pem") as client:
            port = client.server_info().frames_port
        place = FramesPlace("", "127.0.0.1", port, "127.0.0.1")
        monkeypatch.setattr(frame_carrier, "places_of", lambda *_: (place,))
        with npucall_client.connect(target, ca=authority.ca) as client:
            assert client.carrier() == "grpc"
            run(client)


def test_the_command_takes_certificates_of_the_environment(
    server: str, authority: Authority
) -> None:
    given = {f"NPUCALL_{name.upper()}": str(path) for name, path in identity(authority).items()}
    command = [
        sys.executable,
        "-c",
        "from npucall_client.commands import main; main()",
        "info",
    ]
    ended = subprocess.run(
        [*command, server], capture_output=True, text=True, check=False, env={**os.environ, **given}
    )
    assert (ended.returncode, "cpu" in ended.stdout) == (0, True), ended.stderr


def refusal(target: str, **given: Any) -> str:
    with pytest.raises(ServerUnreachableError) as raised:
        npucall_client.connect(target, connect_timeout=1.0, **given)
    return str(raised.value)


def test_who_is_refused_is_told_why(server: str, authority: Authority, tmp_path: Path) -> None:
    """The server is of another authority; the caller brings nothing; it does not speak TLS."""
    given = {**identity(authority), "ca": Authority(tmp_path).ca}
    assert "does not trust the certificate" in refusal(server, **given)
    assert "wants a certificate of the client" in refusal(server, ca=authority.ca)
    assert "uses TLS; set tls" in refusal(server)


def test_an_attempt_to_connect_over_a_long_way_is_made_once(authority: Authority) -> None:
    with (
        served(authority) as target,
        closing(SlowProxy(target)) as way,
        npucall_client.connect(
            way.target, ca=authority.ca, token="secret", connect_timeout=20
        ) as client,
    ):
        run(client)
        assert way.connections == 1


def test_a_restart_over_tls_costs_no_call(authority: Authority) -> None:
    with served(authority) as target:
        client = npucall_client.connect(target, ca=authority.ca)
        run(client)
    with client, served(authority, listen=target):
        run(client)


def looked(client: Client) -> Any:
    """The client's connections, once it has looked at its files."""
    connections = client._transport.link.connections  # type: ignore[attr-defined]
    connections._next_look = 0.0
    run(client)
    return connections


def test_new_certificates_of_a_client_count_for_new_calls_once_they_are_whole(
    tmp_path: Path,
) -> None:
    """The server's authority changes, so that it lets in none with the old certificate."""
    before, clients = Authority(tmp_path), tmp_path / "clients.pem"
    clients.write_bytes(before.ca.read_bytes())
    with (
        served(before, ca=clients) as target,
        npucall_client.connect(target, **identity(before), carrier="grpc") as client,
        client.pipeline() as pipeline,
    ):
        pipeline.submit("aclnnL1LossBackward", ONE, self=ONE, target=ONE).result(wire.PATIENCE)
        first = looked(client)._current
        after = Authority(tmp_path, "after")
        clients.write_bytes(after.ca.read_bytes())
        after.client("anna")
        connections = looked(client)
        assert connections._current is not first
        assert connections._retired == [first]  # the pipeline has a stream there
        pipeline.submit("aclnnL1LossBackward", ONE, self=ONE, target=ONE).result(wire.PATIENCE)
        pipeline.close()
        assert looked(client)._retired == []
        second = connections._current
        bert = after.client("bert").certificate.read_bytes()
        identity(after)["certificate"].write_bytes(bert)  # half of a pair leaves the old one
        assert looked(client)._current is second


ROTATIONS = [20, pytest.param(1000, marks=pytest.mark.long)]


@pytest.mark.parametrize("rotations", ROTATIONS)
def test_no_call_fails_while_all_certificates_are_rotated_under_load(
    tmp_path: Path, rotations: int
) -> None:
    """Certificate and key are replaced one after the other, as most tools do it."""
    authority = Authority(tmp_path)
    done = threading.Event()
    counts = itertools.count()

    def call_until_done(name: str) -> int:
        """On a connection of its own, and from time to time on a new one."""
        calls = 0
        while not done.is_set():
            with npucall_client.connect(target, **identity(authority, name)) as client:
                for turn in range(20):
                    if turn % 5 == 0:
                        authority.client(name)
                        looked(client)
                    run(client, LARGE if turn % 10 == 3 else ONE)
                    calls += 1
                    next(counts)
        return calls

    with served(authority, ca=authority.ca) as target, ThreadPoolExecutor(3) as threads:
        callers = [threads.submit(call_until_done, name) for name in ("anna", "bert", "cleo")]
        try:
            for _ in range(rotations):
                before = next(counts)
                authority.server()
                while next(counts) < before + 3 and not any(each.done() for each in callers):
                    done.wait(0.01)
        finally:
            done.set()
        calls = [caller.result(60) for caller in callers]
    figures(f"{rotations} rotations", f"{sum(calls):,} calls, none failed")
    assert min(calls) > 0
