"""Servers behind an HTTP proxy, and behind a tunnel whose near end has another name."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, suppress
from typing import TYPE_CHECKING, Any

import pytest

import npucall_client
from npucall.errors import ServerUnreachableError

from . import wire
from .every_way import LARGE, call_every_way
from .proxies import PIECE, Proxy, cutting

if TYPE_CHECKING:
    from tests.certificates import Authority

pytestmark = pytest.mark.usefixtures("sender_in_sweeps")

NAME = "npu1.lab"
TARGET = f"{NAME}:50051"
"""Nobody but the proxy knows where it is."""
PASSWORD = "p:w/ü"  # of nobody
LOGIN = base64.b64encode(f"anna:{PASSWORD}".encode()).decode()
QUOTED = "anna:p%3Aw%2F%C3%BC"
VARIABLES = "grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"
NOWHERE = "http://127.0.0.1:1"


class ConnectProxy(Proxy):
    """Knows CONNECT alone, and hosts that nobody else knows.

    ``hosts``: where its names for servers lead; ``login``: NAME:PASSWORD in base64 that callers
    have to bring, if any.
    """

    def __init__(self, hosts: dict[str, str], login: str = "") -> None:
        self._hosts, self._login = hosts, login
        self.servers: list[str] = []
        """Those that callers named."""
        self.sent = bytearray()
        """What clients sent through it."""
        super().__init__("")

    def serve(self, client: socket.socket) -> None:
        self.start(self._answer, client)

    def _answer(self, client: socket.socket) -> None:
        with suppress(OSError):  # it has hung up, or the proxy was closed
            head = b""
            while b"\r\n\r\n" not in head:
                if not (data := client.recv(4096)):
                    return
                head += data
            method, server, _ = head.split(b"\r\n")[0].decode().split(" ")
            self.servers.append(server)
            status = self._status(method, server, head)
            client.sendall(f"HTTP/1.1 {status} said\r\n\r\n".encode())
            if status == 200:  # of HTTP
                self._join(client, self._hosts[server])

    def _status(self, method: str, server: str, head: bytes) -> int:
        if method != "CONNECT":
            return 405
        if self._login and f"Proxy-Authorization: Basic {self._login}".encode() not in head:
            return 407
        return 200 if server in self._hosts else 403

    def _join(self, client: socket.socket, server: str) -> None:
        self.lead_to(server)
        upstream = self.connected()
        self.start(self._forward, upstream, client, None)
        self._forward(client, upstream, self.sent)

    @staticmethod
    def _forward(source: socket.socket, target: socket.socket, seen: bytearray | None) -> None:
        with suppress(OSError):
            while data := source.recv(PIECE):
                if seen is not None:
                    seen += data
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def proxying(hosts: dict[str, str], login: str = "") -> AbstractContextManager[ConnectProxy]:
    return closing(ConnectProxy(hosts, login))


@pytest.fixture(autouse=True)
def _no_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[str]:
    """Over TLS."""
    pair = authority.server("far", (NAME,))
    with wire.server_here(tls_certificate=pair.certificate, tls_key=pair.key) as server:
        yield server.address


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with wire.server_here() as server:
        yield server.address


def called(target: str, **settings: Any) -> None:
    with npucall_client.connect(target, connect_timeout=wire.PATIENCE, **settings) as client:
        call_every_way(client)


def refused(target: str, **settings: Any) -> str:
    with pytest.raises(ServerUnreachableError) as raised:
        npucall_client.connect(target, connect_timeout=0.5, **settings)
    return str(raised.value)


def test_calls_of_every_way_travel_through_a_proxy_that_asks_for_a_password_over_tls_with_a_token(
    server: str, authority: Authority
) -> None:
    with proxying({TARGET: server}, LOGIN) as proxy:
        called(TARGET, ca=authority.ca, token="secret", proxy=f"http://{QUOTED}@{proxy.target}")
        assert set(proxy.servers) == {TARGET}
        assert len(proxy.sent) > LARGE.nbytes
        assert b"secret" not in proxy.sent


def test_a_server_without_tls_is_reached_through_a_proxy_that_is_set_or_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, plain: str
) -> None:
    """One that is set counts also where the environment excepts the host."""
    with proxying({TARGET: plain}) as proxy:
        address = f"http://{proxy.target}"
        called(TARGET, proxy=address)
        for variable in VARIABLES[:3]:
            with monkeypatch.context() as patch:
                patch.setenv(variable, address)
                called(TARGET)
        monkeypatch.setenv("no_proxy", NAME)
        monkeypatch.setenv("https_proxy", NOWHERE)
        monkeypatch.setenv("NPUCALL_PROXY", address)
        called(TARGET)


def test_a_proxy_of_the_environment_can_be_done_without_and_is_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, plain: str
) -> None:
    monkeypatch.setenv("grpc_proxy", NOWHERE)
    elsewhere = f"0.0.0.0:{plain.rpartition(':')[2]}"  # not known as this machine, though it is
    for given in "", "none":
        called(elsewhere, proxy=given)
    monkeypatch.delenv("grpc_proxy")
    monkeypatch.setenv("https_proxy", NOWHERE)
    called(plain)


def test_the_name_of_the_servers_certificate_is_checked_through_a_proxy_and_a_tunnel(
    server: str, authority: Authority
) -> None:
    other = "npu2.lab"
    with proxying({f"{other}:50051": server}) as proxy:
        said = refused(f"{other}:50051", ca=authority.ca, proxy=f"http://{proxy.target}")
        assert "is for another host" in said
    with cutting(server) as tunnel:
        called(tunnel.target, ca=authority.ca, server_name=NAME)
        said = refused(tunnel.target, ca=authority.ca, server_name=other)
        assert "is for another host" in said


def test_the_name_of_a_server_may_come_from_the_environment_and_turns_tls_on(
    monkeypatch: pytest.MonkeyPatch, plain: str
) -> None:
    monkeypatch.setenv("NPUCALL_SERVER_NAME", NAME)
    assert "does not use TLS" in refused(plain)


def test_the_error_names_the_proxy_and_its_variable_and_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with proxying({}, LOGIN) as proxy:
        assert "response code 407" in refused(TARGET, proxy=f"http://{proxy.target}")
        monkeypatch.setenv("https_proxy", f"http://{QUOTED}@{proxy.target}")
        said = refused(TARGET)
    assert said.startswith(
        f"target: expected a server at {TARGET}, found none in 0.5 s, through the HTTP proxy at "
        f"{proxy.target} of the variable https_proxy (NPUCALL_PROXY=none turns it off)"
        "; start one with npucall-server"
    )
    assert "HTTP proxy returned response code 403" in said
    assert not any(secret in said for secret in (PASSWORD, QUOTED, LOGIN, "anna"))
    assert "Connection refused" in refused(TARGET, proxy=NOWHERE)
