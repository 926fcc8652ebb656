"""Something else answers, or nobody: what ``connect`` says, at once where it can."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.client.fake_server import grpc_server
from tests.rows import each

import npucall_client
from npucall.errors import ServerUnreachableError

pytestmark = pytest.mark.usefixtures("sender")

LATE = 300.0
"""Nobody waits for it: what is there says at once what it is."""
unreachable = partial(pytest.raises, ServerUnreachableError)
other_grpc = partial(grpc_server, {})


def connect(target: str, **settings: Any) -> None:
    npucall_client.connect(target, **{"connect_timeout": LATE, **settings})


class _Web(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Web) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def ssh() -> Iterator[str]:
    def serve() -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                with connection, suppress(OSError):
                    connection.sendall(b"SSH-2.0-OpenSSH_9\r\n")
                    connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@each(
    ("other", "settings", "said"),
    [
        (web, {}, "an HTTP/1 server answers at 127"),
        (ssh, {}, r"no gRPC server .* says 'SSH-2\.0-OpenSSH_9'"),
        (other_grpc, {}, r"is no npucall server.*pool:directory:127"),
        (other_grpc, {"tls": True}, "does not use TLS; set tls=False"),
    ],
)
def test_what_else_answers_is_told_at_once(
    other: Callable[[], Any], settings: dict[str, Any], said: str
) -> None:
    with other() as target, unreachable(match=said):
        connect(target, **settings)


def test_a_name_that_no_host_has_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with unreachable(match="^target: no host has the name npu-hst.invalid; correct the target"):
        connect("npu-hst.invalid")


@pytest.fixture
def authorities(tmp_path: Path) -> Callable[..., Any]:
    """Makes an authority, of the name that it is given."""
    pytest.importorskip("trustme")
    from tests.certificates import Authority

    return partial(Authority, tmp_path)


def test_files_that_are_no_certificates_are_named_with_what_is_expected(
    tmp_path: Path, authorities: Callable[..., Any]
) -> None:
    (tmp_path / "text").write_text("no certificate")
    one, other = (authorities(name) for name in ("one", "other"))
    text, pair, key = str(tmp_path / "text"), one.client("anna"), str(other.client("bert").key)
    for given, said in (
        ({"ca": text}, "ca: expected certificates in"),
        ({"certificate": text, "key": key}, "certificate: expected a certificate in"),
        ({"certificate": str(pair.certificate), "key": key}, "and its key, not encrypted, in"),
    ):
        with pytest.raises(ValueError, match=said) as raised:
            npucall_client.connect("localhost:1", **given)
        assert all(file in str(raised.value) for file in given.values())


def _tls(pair: Any, ca: Path | None = None) -> grpc.ServerCredentials:
    """A server's; with ``ca``, which wants certificates of clients."""
    files = [(Path(pair.key).read_bytes(), Path(pair.certificate).read_bytes())]
    return grpc.ssl_server_credentials(files, ca and ca.read_bytes(), ca is not None)


def test_a_certificate_that_does_not_fit_is_told_at_once(authorities: Callable[..., Any]) -> None:
    authority, other = authorities(), authorities("other")
    for hosts, settings, said in (
        (("127.0.0.1",), {}, r"uses TLS; set tls \(NPUCALL_TLS=true\)"),
        (("127.0.0.1",), {"ca": other.ca}, r"trust the certificate .* \(NPUCALL_CA\)$"),
        (("npu.lab",), {"ca": authority.ca}, r"another host; .* \(NPUCALL_SERVER_NAME\)$"),
    ):
        credentials = _tls(authority.server(hosts=hosts))
        with other_grpc(credentials=credentials) as target, unreachable(match=said):
            connect(target, **settings)


def test_another_certificate_that_is_wanted_is_told(authorities: Callable[..., Any]) -> None:
    authority, stranger = authorities(), authorities("other").client("anna")
    own = {"certificate": stranger.certificate, "key": stranger.key}
    with other_grpc(credentials=_tls(authority.server(), authority.ca)) as target:
        for given, wanted in ({}, "wants a certificate"), (own, "another certificate"):
            with unreachable(match=f"{wanted} of the client"):
                connect(target, ca=authority.ca, connect_timeout=0.3, **given)


def test_where_nobody_listens_the_error_says_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody else gets the port, and nobody listens
        target = f"127.0.0.1:{closed.getsockname()[1]}"
        with unreachable() as caught:
            connect(target, connect_timeout=0.3)
    assert str(caught.value) == (
        f"target: expected a server at {target}, found none in 0.3 s; start one with "
        "npucall-server, correct the target (NPUCALL_TARGET), or, if the server uses TLS, name "
        "the authority of its certificate (NPUCALL_CA)"
    )
    with unreachable(match="expected a server at unix:"):
        connect(f"unix:{tmp_path}/none", connect_timeout=0.3)
