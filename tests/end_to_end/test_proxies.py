"""Servers behind an HTTP proxy, and behind a tunnel whose near end has another name."""

from __future__ import annotations

import base64
import signal
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.certificates import Authority

import npucall_client
from npucall.errors import ServerUnreachableError
from npucall_client.testing import running_server

from .proxies import cutting, proxying

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npucall_client import Client
    from npucall_client.testing import ServerProcess

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

NAME = "npu1.lab"
TARGET = f"{NAME}:50051"
"""Nobody but the proxy knows where it is."""
PASSWORD = "p:w/ü"  # of nobody
LOGIN = base64.b64encode(f"anna:{PASSWORD}".encode()).decode()
QUOTED = "anna:p%3Aw%2F%C3%BC"
SMALL, LARGE = np.ones(4, np.float32), np.ones(2**21, np.float32)
VARIABLES = "grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"


@pytest.fixture(autouse=True)
def _no_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[ServerProcess]:
    with running_server(*authority.server("far", (NAME,)).flags) as server:
        yield server


@pytest.fixture(scope="module")
def plain() -> Iterator[ServerProcess]:
    with running_server() as server:
        yield server


def calls_of_every_way_are_answered(client: Client) -> None:
    for array in (SMALL, LARGE):
        found = client.run("aclnnL1LossBackward", array, self=array, target=array)
        np.testing.assert_array_equal(found, np.zeros_like(array))
    with client.pipeline() as pipeline:
        call = pipeline.submit("aclnnL1LossBackward", SMALL, self=SMALL, target=SMALL)
        np.testing.assert_array_equal(call.result(30), np.zeros_like(SMALL))


def test_calls_of_every_way_travel_through_a_proxy_that_asks_for_a_password_over_tls_with_a_token(
    server: ServerProcess, authority: Authority
) -> None:
    with (
        proxying({TARGET: server.target}, LOGIN) as proxy,
        npucall_client.connect(
            TARGET, ca=authority.ca, token="secret", proxy=f"http://{QUOTED}@{proxy.target}"
        ) as client,
    ):
        calls_of_every_way_are_answered(client)
        assert set(proxy.servers) == {TARGET}
        assert len(proxy.sent) > LARGE.nbytes
        assert b"secret" not in proxy.sent


def test_a_server_without_tls_is_reached_through_a_proxy(plain: ServerProcess) -> None:
    with (
        proxying({TARGET: plain.target}) as proxy,
        npucall_client.connect(TARGET, proxy=f"http://{proxy.target}") as client,
    ):
        calls_of_every_way_are_answered(client)


def test_a_proxy_that_is_set_counts_also_where_the_environment_excepts_the_host(
    monkeypatch: pytest.MonkeyPatch, plain: ServerProcess
) -> None:
    monkeypatch.setenv("no_proxy", NAME)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with proxying({TARGET: plain.target}) as proxy:
        monkeypatch.setenv("NPUCALL_PROXY", f"http://{proxy.target}")
        with npucall_client.connect(TARGET) as client:
            calls_of_every_way_are_answered(client)


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_a_proxy_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, plain: ServerProcess, variable: str
) -> None:
    with proxying({TARGET: plain.target}) as proxy:
        monkeypatch.setenv(variable, f"http://{proxy.target}")
        with npucall_client.connect(TARGET) as client:
            calls_of_every_way_are_answered(client)


@pytest.mark.parametrize("given", ["", "none"])
def test_a_proxy_of_the_environment_can_be_done_without(
    monkeypatch: pytest.MonkeyPatch, plain: ServerProcess, given: str
) -> None:
    port = plain.target.rpartition(":")[2]
    elsewhere = f"0.0.0.0:{port}"  # not known as this machine, though it is
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:1")
    with npucall_client.connect(elsewhere, proxy=given) as client:
        calls_of_every_way_are_answered(client)


def test_a_server_of_this_machine_is_reached_without_a_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, plain: ServerProcess
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    with npucall_client.connect(plain.target) as client:
        calls_of_every_way_are_answered(client)


def test_a_certificate_of_another_name_than_the_servers_is_refused_through_a_proxy(
    server: ServerProcess, authority: Authority
) -> None:
    other = "npu2.lab:50051"
    with proxying({other: server.target}) as proxy, pytest.raises(ServerUnreachableError) as raised:
        npucall_client.connect(
            other, ca=authority.ca, proxy=f"http://{proxy.target}", connect_timeout=1
        )
    assert "is for another host" in str(raised.value)


def test_through_a_tunnel_the_name_of_the_servers_certificate_is_checked(
    server: ServerProcess, authority: Authority
) -> None:
    with cutting(server.target) as tunnel:
        with npucall_client.connect(tunnel.target, ca=authority.ca, server_name=NAME) as client:
            calls_of_every_way_are_answered(client)
        with pytest.raises(ServerUnreachableError, match="is for another host"):
            npucall_client.connect(
                tunnel.target, ca=authority.ca, server_name="npu2.lab", connect_timeout=1
            )


def test_the_name_of_a_server_may_come_from_the_environment_and_turns_tls_on(
    monkeypatch: pytest.MonkeyPatch, plain: ServerProcess
) -> None:
    monkeypatch.setenv("NPUCALL_SERVER_NAME", NAME)
    with pytest.raises(ServerUnreachableError, match="does not use TLS"):
        npucall_client.connect(plain.target, connect_timeout=1)


def test_the_error_names_the_proxy_and_its_variable_and_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with proxying({}, LOGIN) as proxy:
        monkeypatch.setenv("https_proxy", f"http://{QUOTED}@{proxy.target}")
        with pytest.raises(ServerUnreachableError) as raised:
            npucall_client.connect(TARGET, connect_timeout=0.5)
    said = str(raised.value)
    assert said.startswith(
        f"target: expected a server at {TARGET}, found none in 0.5 s, through the HTTP proxy at "
        f"{proxy.target} of the variable https_proxy (NPUCALL_PROXY=none turns it off)"
        "; start one with npucall-server"
    )
    assert "HTTP proxy returned response code 403" in said
    assert not any(secret in said for secret in (PASSWORD, QUOTED, LOGIN, "anna"))


def test_the_error_says_that_a_proxy_refused_the_login_or_is_not_there() -> None:
    with (
        proxying({}, LOGIN) as proxy,
        pytest.raises(ServerUnreachableError, match=r"\(NPUCALL_PROXY\).* response code 407"),
    ):
        npucall_client.connect(TARGET, proxy=f"http://{proxy.target}", connect_timeout=0.5)
    with pytest.raises(ServerUnreachableError, match=r"127\.0\.0\.1:1 .*Connection refused"):
        npucall_client.connect(TARGET, proxy="http://127.0.0.1:1", connect_timeout=0.5)


@pytest.mark.long
def test_a_server_that_stops_behind_a_proxy_is_found_by_pings_and_the_next_one_answers(
    plain: ServerProcess,
) -> None:
    """The connection to the proxy lives on: only what answers behind it can say who is there."""
    hosts: dict[str, str] = {}
    with running_server() as server, proxying(hosts) as proxy:
        hosts[TARGET] = server.target
        with npucall_client.connect(TARGET, proxy=f"http://{proxy.target}", timeout=60) as client:
            calls_of_every_way_are_answered(client)
            server.process.send_signal(signal.SIGSTOP)
            hosts[TARGET] = plain.target
            try:
                calls_of_every_way_are_answered(client)
            finally:
                server.process.send_signal(signal.SIGCONT)
